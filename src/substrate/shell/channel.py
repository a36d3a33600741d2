"""Messages from the shell, and our answers, over two named pipes.

The pipes are named because every process that the shell starts would inherit open descriptors.

Ctrl-C may stop the shell in the middle of writing a message or reading an answer. Therefore a
token marks where each message begins and ends, and anything that does not fit is skipped. If an
answer is lost, the shell times out and sends the same message with the same token, and we repeat
the answer.
"""

from __future__ import annotations

import itertools
import os
import select
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

_TICK_S = 0.2
#: Fields between the two tokens.
_FIELDS = {b"\1begin": 3, b"\1end": 2, b"\1left": 0}
#: Any process in the shell's world can write here, so these fields must be numbers, and the rest
#: is bounded.
_NUMBERS = {b"\1begin": (2,), b"\1end": (2, 3), b"\1left": ()}
_MOST_DIGITS = 9
_MOST_BYTES = 4 * 1024 * 1024
#: After this many reads in a row, check whether the shell has ended.
_MOST_READS = 64
#: How many answers are remembered. One is enough if only the shell writes here.
_REMEMBERED = 16


class Message(NamedTuple):
    kind: str
    #: The answer repeats it.
    token: bytes
    #: `begin`: the number of the newest entry in the shell's history, the line and the directory;
    #: `end`: the number and the status.
    fields: tuple[bytes, ...] = ()

    @property
    def number(self) -> int:
        return int(self.fields[0]) if self.fields[0].isdigit() else 0

    @property
    def status(self) -> int:
        return min(int(self.fields[1] or b"0"), 255)


class Channel:
    """Our ends of the pipes. Both are open for reading and writing, so neither side blocks."""

    def __init__(self, directory: Path) -> None:
        self._said = _pipe(directory / "said")
        self._answer = _pipe(directory / "answer")
        self._fields: list[bytes] = []
        self._rest = b""
        #: The answer to each token; None: the message is still being handled.
        self._answers: dict[bytes, str | None] = {}

    def close(self) -> None:
        os.close(self._said)
        os.close(self._answer)

    def next(
        self, is_over: Callable[[], bool], others: Callable[[], Mapping[int, Callable[[], None]]]
    ) -> Message | None:
        """The next message; None once `is_over` returns true, which is checked now and then.

        `others`: the functions to call when other descriptors become readable while we wait.
        """
        reads = 0
        while True:
            message = self._whole()
            if message is not None:
                return message
            heard = others()
            readable, _, _ = select.select([self._said, *heard], [], [], _TICK_S)
            if self._said in readable:
                self._read()
                reads += 1
                if reads % _MOST_READS:
                    continue
            for fd in readable:
                if fd in heard:
                    heard[fd]()
            if is_over():
                return None

    def answer(self, message: Message, word: str) -> None:
        self._answers[message.token] = word
        self._say(message.token, word)

    def _say(self, token: bytes, word: str) -> None:
        try:
            os.write(self._answer, token + b" " + word.encode() + b"\n")
        except BlockingIOError:
            pass  # full of answers that are never read; the shell asks again

    def _read(self) -> None:
        *whole, self._rest = (self._rest + os.read(self._said, 8192)).split(b"\0")
        self._fields += whole
        if len(self._rest) > _MOST_BYTES:
            self._rest = b""

    def _whole(self) -> Message | None:
        while True:
            strange = itertools.takewhile(lambda field: field not in _FIELDS, self._fields)
            del self._fields[: sum(1 for _ in strange)]
            if not self._fields or len(self._fields) < _FIELDS[self._fields[0]] + 3:
                return None
            kind, token = self._fields[:2]
            last = _FIELDS[kind] + 2
            if self._fields[last] != token or not self._are_numbers(_NUMBERS[kind]):  # torn
                self._fields.pop(0)
                continue
            message = Message(kind[1:].decode(), token, tuple(self._fields[2:last]))
            del self._fields[: last + 1]
            if self._is_new(message):
                return message

    def _are_numbers(self, places: tuple[int, ...]) -> bool:
        found = [self._fields[at] for at in places]
        return all(len(one) <= _MOST_DIGITS and (not one or one.isdigit()) for one in found)

    def _is_new(self, message: Message) -> bool:
        if message.token in self._answers:
            word = self._answers[message.token]
            if word is not None:
                self._say(message.token, word)
            return False
        self._answers[message.token] = None
        if len(self._answers) > _REMEMBERED:
            self._answers.pop(next(iter(self._answers)))
        return True


def _pipe(path: Path) -> int:
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
