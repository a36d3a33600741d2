"""Appends of several writers against a plain model: a list of lines for each.

Each writer starts from some state of the file, sees what arrives until it first writes, appends its
lines and arrives. What the file must hold then is worked out here without a merge: every line once,
the lines of each arrival together at the end, in order of arrival.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from substrate.objects.snapshots.merge import append_taken_back, both_appended

#: How many lines a writer appends; how many arrivals it missed since it started; how many of
#: those it had seen by its first write.
WRITERS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8
)
FIRST = st.sampled_from([b"", b"first\n", b"\n", b"one\ntwo\n"])


def lines_of(writer: int, count: int) -> bytes:
    return b"".join(b"writer %d line %d\n" % (writer, n) for n in range(count))


@given(FIRST, WRITERS)
def test_every_line_of_every_writer_stays(
    first: bytes, writers: list[tuple[int, int, int]]
) -> None:
    states = [first]
    expected = first
    for writer, (count, missed, seen) in enumerate(writers):
        started = max(len(states) - 1 - missed, 0)
        wrote_at = min(started + seen, len(states) - 1)
        own = lines_of(writer, count)
        base, ours, theirs = states[started], states[-1], states[wrote_at] + own
        expected += own
        assert both_appended(base, ours, theirs) == expected
        states.append(expected)


@given(FIRST, WRITERS, st.data())
def test_one_append_is_taken_back_and_the_others_stay(
    first: bytes, writers: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    parts = [lines_of(writer, count) for writer, (count, _, _) in enumerate(writers)]
    chosen = data.draw(st.integers(0, len(parts) - 1))
    before = first + b"".join(parts[:chosen])
    after = before + parts[chosen]
    later = b"".join(parts[chosen + 1 :])
    assert append_taken_back(after, after + later, before) == before + later


TEXT = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\0"]), max_size=8).map(b"".join)


@given(TEXT, TEXT, TEXT)
def test_nothing_else_counts_as_an_append(base: bytes, ours: bytes, theirs: bytes) -> None:
    merged = both_appended(base, ours, theirs)
    whole = all(not one or one.endswith(b"\n") for one in (base, ours, theirs))
    if merged is None:
        starts = ours.startswith(base) and theirs.startswith(base)
        assert not (starts and whole) or b"\0" in base + ours + theirs
    else:
        assert whole
        assert merged.startswith(ours), "what arrived first stays as it is"
        rest = merged[len(ours) :]
        assert theirs.endswith(rest)
        assert ours.startswith(theirs[: len(theirs) - len(rest)]), "all that is not added is there"
