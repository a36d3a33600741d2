"""One line as the shell reports it: it asks to begin, runs, and reports its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from substrate.shell.channel import Channel, Message


class Listener(Protocol):
    """The object that waits for the shell's next message."""

    @property
    def channel(self) -> Channel: ...

    def next(self) -> Message | None:
        """None when the shell has ended."""
        ...


class Turn:
    """`run` lets the line run; the shell then waits until `close`."""

    def __init__(self, listener: Listener, begin: Message | None, over: Callable[[], int]) -> None:
        """Without a `begin` nothing is run; `over` returns the status of a shell that has ended."""
        self._listener = listener
        self._begin = begin
        self._over = over
        self._waiting: Message | None = None
        self.has_run = begin is None
        #: The next line, if the shell never reported the end of this one: our hook was removed.
        self.successor: Message | None = None

    def run(self, *, merge: bool = False) -> int:
        """The line's status. `merge`: a line that begins before this one ends is part of it."""
        if self.has_run or self._begin is None:
            return 0
        self.has_run = True
        self._listener.channel.answer(self._begin, "go")
        while True:
            message = self._listener.next()
            if message is None:
                return self._over()
            if message.kind == "end":
                self._waiting = message
                return message.status
            if message.kind == "begin":
                if not merge:
                    self.successor = message
                    return 0
                self._listener.channel.answer(message, "go")
            else:
                self._listener.channel.answer(message, "ok")

    def step_aside(self) -> None:
        """Make the shell leave its directory until `close`."""
        if self._waiting is None:
            return
        self._listener.channel.answer(self._waiting, "leave")
        self._waiting = self._listener.next()

    def close(self, word: str) -> None:
        if self._waiting is not None:
            self._listener.channel.answer(self._waiting, word)
