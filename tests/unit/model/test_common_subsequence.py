"""The longest common subsequence, against the textbook's table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.model import common_subsequence
from substrate.model.common_subsequence import Pair, common, gaps

LISTS = st.lists(st.sampled_from("abcd"), max_size=24)


def longest(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        above = row[:]
        for n, y in enumerate(b):
            row[n + 1] = above[n] + 1 if x == y else max(above[n + 1], row[n])
    return row[-1]


@given(LISTS, LISTS)
def test_as_long_as_can_be_and_rising(a: list[str], b: list[str]) -> None:
    pairs = common(a, b)
    assert len(pairs) == longest(a, b)
    assert all(a[x] == b[y] for x, y in pairs)
    assert all(p.a < q.a and p.b < q.b for p, q in pairwise(pairs))


@given(LISTS, LISTS)
def test_pairs_and_gaps_cover_both_lists(a: list[str], b: list[str]) -> None:
    pairs = common(a, b)
    left = [pair.a for pair in pairs] + [n for gap, _ in gaps(pairs, len(a), len(b)) for n in gap]
    right = [pair.b for pair in pairs] + [n for _, gap in gaps(pairs, len(a), len(b)) for n in gap]
    assert sorted(left) == list(range(len(a)))
    assert sorted(right) == list(range(len(b)))


def test_very_long_lists_are_cut_at_what_is_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    a = [f"{n}" for n in range(300)]
    b = [*a[:100], "new", *a[101:200], *a[250:], *a[200:250]]
    exact = common(a, b)
    monkeypatch.setattr(common_subsequence, "_MAX_BITS", 10)
    assert len(common(a, b)) == len(exact) == 249
    assert common(["x"] * 9, ["x"] * 5 + ["y"] + ["x"] * 2)[0] == Pair(0, 0)
