"""Worlds of a workspace in which processes outlive their command: when to bring in their changes.

The watcher checks these worlds itself: that takes a few system calls each. Only when one has ended,
or is not known yet, a child collects it (`idle_work.collect`).
"""

from __future__ import annotations

import os
from pathlib import Path

from substrate.system import clock
from substrate.world.layer import layer_dirs

_BETWEEN_CHECKS_NS = 1_000_000_000


class LeftWorlds:
    def __init__(self) -> None:
        #: Their directories; None: unknown, so the next job must look.
        self._running: list[Path] | None = []
        self._at_ns = 0

    @property
    def are_awaited(self) -> bool:
        return self._running is None or bool(self._running)

    def look_soon(self) -> None:
        """A command has left processes; it may still be recording itself."""
        self._running = None
        self.look_at(clock.monotonic_ns() + _BETWEEN_CHECKS_NS)

    def look_at(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def wait_for(self, running: list[bytes]) -> None:
        """Wait for the end of these worlds, given by their directories."""
        self._running = [Path(os.fsdecode(path)) for path in running]
        self.look_at(clock.monotonic_ns() + _BETWEEN_CHECKS_NS)

    def due_ns(self) -> int | None:
        return self._at_ns if self.are_awaited else None

    def has_ended(self) -> bool:
        """Whether there is something to collect; if not, look again later."""
        if self._running is None:
            return True
        if any(not layer_dirs.is_running_at(path) for path in self._running):
            return True
        self.look_at(clock.monotonic_ns() + _BETWEEN_CHECKS_NS)
        return False
