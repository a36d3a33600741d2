"""Paths of a tree by how they end, searched for or looked up: the answers are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from substrate.graph.resolve.project_view import Places

names = st.sampled_from([b"a", b"b.py", b"aa", b"a\nb", b"\xff", b"__init__.py"])
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)


@given(st.sets(paths, max_size=12).map(sorted), st.lists(paths, min_size=1, max_size=6))
def test_endings(tree: list[bytes], asked: list[bytes]) -> None:
    places = Places(tree)
    for _ in range(30):  # the first are searched for, the last looked up
        for suffix in asked:
            expected = [p for p in tree if p == suffix or p.endswith(b"/" + suffix)]
            assert places.ending(suffix) == expected
    for directory in [b"", *asked]:
        expected = [p for p in tree if p.rpartition(b"/")[0] == directory]
        assert places.inside(directory) == expected
