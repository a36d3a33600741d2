"""A small loop over poll(2): descriptors, timers, and calls from other threads.

Everything about one command's network runs in one such loop, in one thread, so that it needs no
locks. asyncio would work, but importing it costs more than most commands take.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from substrate.system import clock

READ, WRITE = 1, 4
Ready = Callable[[int], None]


class EventLoop:
    """Runs until `stop`; then everything that was registered is forgotten, not closed."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._ready: dict[int, Ready] = {}
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._woken, select.POLLIN)
        self._running = True
        self._closing = threading.Lock()
        self._closed = False
        #: The first error that a call raised; empty if none did.
        self.failure = ""

    def watch(self, descriptor: int, events: int, ready: Ready) -> None:
        """Call `ready(events)` for each of these events; replaces an earlier registration."""
        self._ready[descriptor] = ready
        self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        if self._ready.pop(descriptor, None) is not None:
            with suppress(OSError, KeyError):
                self._poll.unregister(descriptor)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        at = clock.monotonic_ns() + int(seconds * 1e9)
        heapq.heappush(self._timers, (at, self._count, call))

    def call_soon(self, call: Callable[[], None]) -> None:
        """May be called from any thread."""
        self._calls.append(call)
        with self._closing, suppress(OSError):  # a full pipe wakes the loop as well
            if not self._closed:
                os.write(self._wake, b"w")

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            for descriptor, events in self._poll.poll(self._wait_ms()):
                if descriptor == self._woken:
                    os.read(self._woken, 4096)
                    continue
                ready = self._ready.get(descriptor)
                if ready is not None and not self._try(lambda r=ready, e=events: r(e)):  # type: ignore[misc]
                    self.forget(descriptor)
            while self._calls:
                self._try(self._calls.popleft())
            now = clock.monotonic_ns()
            while self._timers and self._timers[0][0] <= now:
                self._try(heapq.heappop(self._timers)[2])

    def _try(self, call: Callable[[], None]) -> bool:
        """Call it; an error of one connection must not end the others."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - remembered, and said in the account
            self.failure = self.failure or f"{type(error).__name__}: {error}"
            return False
        return True

    def close(self) -> None:
        """After `run`. Later calls are dropped."""
        self._ready.clear()
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._woken)
                os.close(self._wake)

    def _wait_ms(self) -> int | None:
        if not self._timers:
            return None
        return max(0, (self._timers[0][0] - clock.monotonic_ns()) // 1_000_000 + 1)
