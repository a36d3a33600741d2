"""Marks in a stream are taken out again, however it is cut into pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from substrate.system.process import fd_channel as channels
from substrate.system.terminal.pty_capture import Marks, Relayed

_MARKS = Marks(b"\x1b]7777;AB;1\x07", b"\x1b]7777;AB;2\x07")
#: Pieces that look like the beginning of a mark, and are none.
_BYTES = st.lists(
    st.sampled_from([b"a", b"\r\n", b"\x1b", b"\x1b]7777;", b"\x1b]7777;AB;", b"\x07", b"\xff"]),
    max_size=12,
).map(b"".join)


@given(before=_BYTES, within=_BYTES, after=_BYTES, size=st.integers(1, 9), cap=st.integers(0, 30))
def test_the_user_sees_all_but_the_marks(
    before: bytes, within: bytes, after: bytes, size: int, cap: int
) -> None:
    import tempfile

    ours, theirs = channels.pair()
    relayed = Relayed(_MARKS, ours)
    with tempfile.TemporaryDirectory() as directory:
        kept = Path(directory, "new", "stdout")
        theirs.send("keep", bytes(kept), cap)
        stream = before + _MARKS.begin + within + _MARKS.end + after
        seen = b"".join(relayed.feed(stream[at : at + size]) for at in range(0, len(stream), size))
        seen += relayed.rest()
        assert seen == before + within + after
        (_, digest, length, is_kept), _ = theirs.receive()
        assert (digest, length) == (hashlib.sha256(within).hexdigest(), len(within))
        assert is_kept == kept.exists() == bool(within and cap)
        if is_kept:
            assert kept.read_bytes() == within[:cap]
    ours.close()
    theirs.close()


def test_a_stream_without_marks_passes_at_once() -> None:
    ours, theirs = channels.pair()
    relayed = Relayed(Marks.new(), ours)
    assert relayed.feed(b"hello\x1b") == b"hello"
    assert relayed.feed(b"[0m") == b"\x1b[0m"
    ours.close()
    theirs.close()
