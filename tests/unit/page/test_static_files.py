"""The files that a browser loads: vendored ones unchanged, ours within the policy."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from substrate.page import static_files

DIRECTORY = static_files.DIRECTORY
#: npm's preact 11.2.0 and htm 3.1.1, byte for byte, but for hooks.mjs: its import names the file
#: beside it, because a page without inline scripts cannot have an import map.
VENDORED = {
    "preact.mjs": "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
    "hooks.mjs": "427a330c992595bfd3f6cfe43eb6ba7a238ea1a7fa99c0e4a8f380a30dde473b",
    "htm.mjs": "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
    "LICENSE.preact": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
    "LICENSE.htm": "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
}
OURS = sorted(path for path in DIRECTORY.iterdir() if path.is_file())


def test_vendored_files_are_those_of_npm() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (DIRECTORY / "vendor").iterdir()
    }
    assert found == VENDORED


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_of_ours_makes_markup_from_text(path: Path) -> None:
    text = path.read_text("utf-8")
    wrong = r"innerHTML|outerHTML|insertAdjacent|dangerouslySet|document\.write|eval\(|Function\("
    assert re.findall(wrong, text) == []
    assert re.findall(r"https?://(?!127)", text) == [], "no network asset"
    assert re.findall(r"\son\w+=\"|<style|style=\"", text) == [], "the policy forbids inline ones"


def test_script_and_style_are_small() -> None:
    loaded = [path for path in DIRECTORY.rglob("*") if path.suffix in (".js", ".mjs", ".css")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) < 60_000


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast(theme: int) -> None:
    style = (DIRECTORY / "page.css").read_text("utf-8")
    block = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{(.*?)\n\}", style, re.S)[theme]
    colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    grounds = ("bg", "bg-sub", "bg-raise")
    pairs = [(ink, ground) for ink in ("ink", "ink-2", "ink-3") for ground in grounds]
    names = ("add", "del", "you", "bad", "warn")
    pairs += [(name, f"{name}-bg") for name in names] + [("on-solid", "solid")]
    for ink, ground in pairs:
        one, other = sorted([_luminance(colour[ink]), _luminance(colour[ground])])
        assert (other + 0.05) / (one + 0.05) >= 4.5, (ink, ground)
