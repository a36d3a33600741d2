"""What the shell tells us, and what we answer, over two named pipes.

Named, because descriptors would be inherited by everything that is run in the shell.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_TICK_S = 0.2
#: Fields behind the first, which is the kind.
_FIELDS = {b"begin": 4, b"end": 3}


class Message(NamedTuple):
    kind: str
    #: To be given back with the answer.
    token: bytes
    #: The number of the newest entry in the shell's history.
    number: int
    #: `begin`: the line and the directory; `end`: the status.
    rest: tuple[bytes, ...]


class Channel:
    """Our ends of the pipes; both are held open for reading and writing, so nobody blocks."""

    def __init__(self, directory: Path) -> None:
        self._said = _pipe(directory / "said")
        self._answer = _pipe(directory / "answer")
        self._fields: list[bytes] = []
        self._rest = b""

    def close(self) -> None:
        os.close(self._said)
        os.close(self._answer)

    def next(self, is_over: Callable[[], bool]) -> Message | None:
        """The next message; None when it `is_over`, which is asked now and then."""
        while True:
            message = self._whole()
            if message is not None:
                return message
            readable, _, _ = select.select([self._said], [], [], _TICK_S)
            if readable:
                *whole, self._rest = (self._rest + os.read(self._said, 65536)).split(b"\0")
                self._fields += whole
            elif is_over():
                return None

    def answer(self, message: Message, word: str) -> None:
        try:
            os.write(self._answer, message.token + b" " + word.encode() + b"\n")
        except BlockingIOError:
            pass  # full of answers that nobody reads any more

    def _whole(self) -> Message | None:
        while self._fields and self._fields[0] not in _FIELDS:
            self._fields.pop(0)  # somebody else wrote here
        if not self._fields or len(self._fields) <= _FIELDS[self._fields[0]]:
            return None
        kind, token, number, *_ = self._fields
        count = _FIELDS[kind] + 1
        rest = tuple(self._fields[3:count])
        del self._fields[:count]
        return Message(kind.decode(), token, int(number) if number.isdigit() else 0, rest)


def _pipe(path: Path) -> int:
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
