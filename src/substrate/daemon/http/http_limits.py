"""How much the HTTP server takes on at once, so that no client can make it grow without end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from substrate.errors import RefusedError
from substrate.system import clock

MOST_EXECUTING = 16
#: Per stream of a command whose output is collected; the rest is read and dropped.
MOST_OUTPUT_BYTES = 4 * 1024 * 1024
#: Requests that start something: this many at once, then this many a second.
BURST, RATE = 200, 50.0


class BusyError(RefusedError):
    """Too much at once; the client may try again."""

    kind = "busy"


class Limits:
    def __init__(self) -> None:
        self.executing = 0
        self._tokens = float(BURST)
        self._refilled_ns = clock.monotonic_ns()

    @contextmanager
    def executing_one(self) -> Iterator[None]:
        """Take a place for a command, or raise `BusyError`."""
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

    def _take_token(self) -> None:
        now = clock.monotonic_ns()
        self._tokens = min(BURST, self._tokens + (now - self._refilled_ns) / 1e9 * RATE)
        self._refilled_ns = now
        if self._tokens < 1:
            raise BusyError("too many requests", hint=f"at most {RATE:g} a second")
        self._tokens -= 1
