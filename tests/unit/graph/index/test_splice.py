from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.graph.index.splice import Sections

#: Few different bytes, so that a hash also occurs across the border of two others.
HASHES = st.integers(0, 3).map(lambda n: n * 0x01010101) | st.integers(0, 2**32 - 1)


#: Enough names for one pass; without them each name is searched on its own.
MANY = set(range(1000, 1100))


@pytest.mark.parametrize("others", [set[int](), MANY])
@given(st.lists(st.sets(HASHES, max_size=6), max_size=12), st.sets(HASHES, max_size=6))
def test_a_pass_over_the_table_finds_what_single_searches_find(
    others: set[int], mentioned: list[set[int]], some: set[int]
) -> None:
    wanted = others | some | set().union(*mentioned[:2])
    table = Sections()
    table.paths = [b"%04d" % row for row in range(len(mentioned))]
    table.mentioned_counts = array("I", map(len, mentioned))
    table.mentioned = b"".join(hash_.to_bytes(4, "little") for row in mentioned for hash_ in row)
    each = table.rows_mentioning_each(wanted)
    assert each == {
        hash_: {row for row, hashes in enumerate(mentioned) if hash_ in hashes} for hash_ in wanted
    }
    assert table.rows_mentioning(wanted) == set().union(*each.values())
    assert all(table.rows_mentioning({hash_}) == each[hash_] for hash_ in wanted)


@given(st.lists(st.lists(HASHES, max_size=6), max_size=12), HASHES)
def test_rows_are_the_same_before_and_after_the_pass(defined: list[list[int]], one: int) -> None:
    table = Sections()
    table.paths = [b"%04d" % row for row in range(len(defined))]
    table.defined_counts = array("I", map(len, defined))
    table.defined = b"".join(hash_.to_bytes(4, "little") for row in defined for hash_ in row)
    for hash_ in [one, *MANY, one, *(hash_ for row in defined for hash_ in row)]:
        rows = [row for row, hashes in enumerate(defined) if hash_ in hashes]
        assert list(table.rows_defining(hash_)) == rows
