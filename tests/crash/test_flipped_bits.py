"""A flipped bit in any file of a store is found, or changes no answer."""

from __future__ import annotations

from pathlib import Path

from tests.crash.flipped_bits import FOUND, WRONG, flip_all


def test_no_flipped_bit_makes_a_wrong_answer(tmp_path: Path) -> None:
    table = flip_all(tmp_path, bits=3)
    assert {name: counts[WRONG] for name, counts in table.items() if counts[WRONG]} == {}
    for name in (".git/HEAD", ".git/objects/pack/*.pack", ".git/refs/…"):
        assert set(table[name]) == {FOUND}
    assert {"index/history.db", "index/stat-cache"} <= set(table)
