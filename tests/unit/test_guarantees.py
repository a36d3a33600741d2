"""Every guarantee in docs/guarantees.md names a test, and the test is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<file>[^`:]+)::(?P<test>\w+)` \|$")


def rows(text: str) -> list[tuple[str, str, str]]:
    """Promise, file and test of each line of the table; a line of another shape is an error."""
    table = [line for line in text.splitlines() if line.startswith("|")][2:]
    found = [_ROW.match(line) for line in table]
    bad = [line for line, match in zip(table, found, strict=True) if match is None]
    assert not bad, f"a guarantee without a test: {bad}"
    return [(m["what"], m["file"], m["test"]) for m in found if m]


def is_there(file: str, test: str) -> bool:
    path = ROOT / file
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text("utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == test for node in ast.walk(tree))


GUARANTEES = rows((ROOT / "docs" / "guarantees.md").read_text("utf-8"))


@pytest.mark.parametrize(("what", "file", "test"), GUARANTEES, ids=lambda text: str(text)[:40])
def test_its_test_is_there(what: str, file: str, test: str) -> None:
    assert is_there(file, test), f"{what}: no test {test} in {file}"


def test_a_missing_test_is_noticed() -> None:
    assert not is_there("tests/unit/test_guarantees.py", "test_nobody_wrote")
    assert not is_there("tests/nowhere.py", "test_x")
    with pytest.raises(AssertionError, match="without a test"):
        rows("| a | b |\n|---|---|\n| Promised | one day |")
