"""Every threat in docs/security.md names its test, and every attack is listed there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.security.test_escapes import ALL
from tests.unit.test_guarantees import is_there

ROOT = Path(__file__).parents[2]
_ROW = re.compile(
    r"^\| (?P<threat>[^|]+) \| `(?P<tier>\w+)`[^|]* \| `(?P<file>[^`:]+)::(?P<name>\w+)` \|$"
)


def rows() -> list[re.Match[str]]:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    table = text.partition("| Threat |")[2].partition("\n\n")[0].splitlines()[2:]
    found = [_ROW.match(line) for line in table]
    bad = [line for line, match in zip(table, found, strict=True) if match is None]
    assert not bad, f"a threat without its test: {bad}"
    return [match for match in found if match]


def test_what_tries_it_is_there() -> None:
    missing = [row["name"] for row in rows() if not is_there(row["file"], row["name"])]
    assert missing == []


def test_every_attack_is_listed_with_its_tier() -> None:
    written = {row["name"]: row["tier"] for row in rows() if row["file"].endswith("attacks.py")}
    assert written == {attack.name: attack.held_from for attack in ALL}
