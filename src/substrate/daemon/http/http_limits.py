"""Limits on what the HTTP server does at the same time, so that no client can exhaust it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from substrate.errors import RefusedError
from substrate.system import clock

MOST_EXECUTING = 16
#: WebSockets that have not yet sent what to run.
MOST_WAITING = 32
#: Per stream of a command whose output is collected; the rest is read and dropped.
MOST_OUTPUT_BYTES = 4 * 1024 * 1024
#: Requests that start something: this many at once, then this many a second.
BURST, RATE = 200, 50.0


class BusyError(RefusedError):
    """Too many requests at the same time; the client may try again."""

    kind = "busy"


class Limits:
    def __init__(self) -> None:
        self.executing = 0
        self.waiting = 0
        self._tokens = float(BURST)
        self._refilled_ns = clock.monotonic_ns()

    @contextmanager
    def executing_one(self) -> Iterator[None]:
        """Take a slot for a command, or raise `BusyError`."""
        self._take_token()
        if self.executing >= MOST_EXECUTING:
            raise BusyError(
                f"{self.executing} commands are running already", hint="try again when one is done"
            )
        self.executing += 1
        try:
            yield
        finally:
            self.executing -= 1

    @contextmanager
    def waiting_one(self) -> Iterator[None]:
        """Take a slot for a WebSocket until its `start` has come, or raise `BusyError`: silent
        clients must leave room for others."""
        if self.waiting >= MOST_WAITING:
            raise BusyError(
                f"{self.waiting} WebSockets wait to start something",
                hint="send start, or close some",
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def _take_token(self) -> None:
        now = clock.monotonic_ns()
        self._tokens = min(BURST, self._tokens + (now - self._refilled_ns) / 1e9 * RATE)
        self._refilled_ns = now
        if self._tokens < 1:
            raise BusyError("too many requests", hint=f"at most {RATE:g} a second")
        self._tokens -= 1
