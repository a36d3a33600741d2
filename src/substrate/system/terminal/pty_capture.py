"""Capturing a command's output on a relayed terminal, between two marks in the stream (POSIX).

The recorder runs on the terminal's inner side, as the command does, and writes a mark before the
command starts and another when it has ended. Marks travel in the stream itself, so they are in
exactly the right place. The relay removes them again, and answers the second one with the size and
the hash of the output between them.

    recorder ──▶ mark, the command's output, mark ──▶ relay ──▶ the user, without the marks
        ◀────────────── size, hash ──────────────────────┘
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, cast

from substrate.system.files import files
from substrate.system.process import Channel, ClosedError

if TYPE_CHECKING:
    from hashlib import _Hash

_ANSWER_S = 30.0


class Marks(NamedTuple):
    """Upper case and digits only: the terminal's settings change nothing of them on the way."""

    begin: bytes
    end: bytes

    @classmethod
    def new(cls) -> Marks:
        name = os.urandom(12).hex().upper().encode()
        return cls(b"\x1b]7777;" + name + b";1\x07", b"\x1b]7777;" + name + b";2\x07")


class Noted(NamedTuple):
    sha256: str
    size_bytes: int
    #: Whether the beginning of the output was saved to the requested file.
    is_kept: bool


class Tap:
    """The recorder's end."""

    def __init__(self, marks: Marks, channel: Channel) -> None:
        self._marks = marks
        self._channel = channel

    def begin(self, path: bytes, cap_bytes: int, terminal: int = 1) -> None:
        """Start capturing: the file `path` keeps up to `cap_bytes` of the output."""
        self._channel.send("keep", path, cap_bytes)
        files.write_all(terminal, self._marks.begin)

    def end(self, terminal: int = 1) -> Noted | None:
        """The captured output's size and hash; None if the relay does not answer."""
        try:
            files.write_all(terminal, self._marks.end)
            if not self._channel.ready(_ANSWER_S):
                return None
            message, _ = self._channel.receive()
        except (OSError, ClosedError):
            return None
        _, digest, size, is_kept = message
        return Noted(cast(str, digest), cast(int, size), cast(bool, is_kept))


#: Set in a process on the inner side of a terminal that is relayed with a tap.
current: Tap | None = None


class Relayed:
    """The relay's end: everything from the terminal goes through `feed`."""

    def __init__(self, marks: Marks, channel: Channel) -> None:
        self._marks = marks
        self._channel = channel
        self._note: _Note | None = None
        #: Bytes that may be the beginning of a mark.
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """`data` without the marks, to pass on."""
        data, self._held = self._held + data, b""
        out = []
        while True:
            mark = self._marks.begin if self._note is None else self._marks.end
            before, found, data = data.partition(mark)
            if not found:
                held = _beginning_of(mark, before)
                self._held, before = before[len(before) - held :], before[: len(before) - held]
            out.append(before)
            if self._note is not None:
                self._note.take(before)
            if not found:
                return b"".join(out)
            self._turn()

    def rest(self) -> bytes:
        """At the end of the stream: held bytes that turned out not to be a mark."""
        held, self._held = self._held, b""
        return held

    def _turn(self) -> None:
        if self._note is None:
            try:
                (_, path, cap_bytes), _ = self._channel.receive()
            except ClosedError:
                return
            self._note = _Note(cast(bytes, path), cast(int, cap_bytes))
            return
        note, self._note = self._note, None
        digest, size, is_kept = note.done()
        try:
            self._channel.send("noted", digest, size, is_kept)
        except ClosedError:
            pass


class _Note:
    def __init__(self, path: bytes, cap_bytes: int) -> None:
        import hashlib

        self._path = path
        self._cap_bytes = cap_bytes
        self._hash: _Hash = hashlib.sha256()
        self._size_bytes = 0
        self._file: int | None = None
        self._failed = False

    def take(self, data: bytes) -> None:
        room = self._cap_bytes - self._size_bytes
        self._hash.update(data)
        self._size_bytes += len(data)
        if room <= 0 or self._failed or not data:
            return
        try:
            if self._file is None:
                os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
            files.write_all(self._file, data[:room])
        except OSError:
            self._failed = True  # the user's terminal matters more than our copy

    def done(self) -> tuple[str, int, bool]:
        is_kept = self._file is not None and not self._failed
        if self._file is not None:
            os.close(self._file)
        return self._hash.hexdigest(), self._size_bytes, is_kept


def _beginning_of(mark: bytes, data: bytes) -> int:
    """How many of the last bytes of `data` may be the beginning of `mark`."""
    for length in range(min(len(mark) - 1, len(data)), 0, -1):
        if data.endswith(mark[:length]):
            return length
    return 0
