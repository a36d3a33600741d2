"""Whether a workspace is quiet, for views that are used again: ask, set up, release.

This is useful only after a command has walked the tree for a while and changed nothing. Until then
there is no watch, and the watch is released when there were no questions for a long time: each
watch pins an inode.
"""

from __future__ import annotations

import os
from pathlib import Path

from substrate.daemon.server import Result, idle_work
from substrate.errors import MissingDependencyError
from substrate.system import clock
from substrate.system.process import fork_workers
from substrate.workspace.watch import StillWatch

_S = 1_000_000_000
#: Release the watches after so long without a question.
_UNUSED_NS = 600 * _S
#: The pauses after too many events at once, and after an obstacle that will not go away soon.
_AGAIN_NS, _CANNOT_NS = 10 * _S, 600 * _S
#: Events are read in bunches.
_BETWEEN_READS_NS = _S // 10
#: A file that has existed for so long is not about to be removed.
_STAYS_NS = 2 * _S


class Stillness:
    def __init__(self, root: bytes) -> None:
        self._root = root
        self._watch: StillWatch | None = None
        self._is_ready = False
        self._asked_ns: int | None = None
        self._not_before_ns = 0
        self._read_ns = 0
        self._passing_ns = 0
        #: Why the watch could not be set up, or was lost.
        self.why_not = ""

    @property
    def watches(self) -> int:
        return self._watch.watches if self._watch is not None and self._is_ready else 0

    def answer(self, *, in_passing: bool) -> bytes:
        """The token as of now; empty if nothing is known (yet)."""
        self._asked_ns = clock.monotonic_ns()
        if self._watch is None or not self._is_ready:
            return b""
        self._read_ns = self._asked_ns
        if not self._watch.is_passing:
            self._passing_ns = self._asked_ns
        token = self._watch.token(in_passing=in_passing)
        if self._watch.lost:
            self._give_up(self._watch.lost, _AGAIN_NS)
            return b""
        return token

    def fileno(self) -> int | None:
        """The descriptor to poll for events; None while they can wait, or must."""
        if self._watch is None or not self._is_ready or self._reads_at_ns() is not None:
            return None
        return self._watch.fd

    def read(self) -> bool:
        """Whether anything has happened since the last time."""
        if self._watch is None or not self._is_ready:
            return False
        self._read_ns = clock.monotonic_ns()
        is_stirred = self._watch.read()
        if not self._watch.is_passing:
            self._passing_ns = self._read_ns
        elif self._read_ns - self._passing_ns >= _STAYS_NS:
            self._watch.let_stay()
            is_stirred = True
        if self._watch.lost:
            self._give_up(self._watch.lost, _AGAIN_NS)
        return is_stirred

    def due_ns(self) -> int | None:
        """When there will be something to do."""
        if self._watch is not None and self._is_ready:
            times = [self._reads_at_ns()]
            if self._watch.is_passing:
                times.append(self._passing_ns + _STAYS_NS)
            return min((at for at in times if at is not None), default=None)
        return None if self._asked_ns is None else self._not_before_ns

    @property
    def is_overdue(self) -> bool:
        """Whether to `read` even without events: new files have stayed."""
        if self._watch is None or not self._is_ready or not self._watch.is_passing:
            return False
        return clock.monotonic_ns() - self._passing_ns >= _STAYS_NS

    def _reads_at_ns(self) -> int | None:
        at = self._read_ns + _BETWEEN_READS_NS
        return at if clock.monotonic_ns() < at else None

    @property
    def wants_set_up(self) -> bool:
        if self._asked_ns is not None and clock.monotonic_ns() - self._asked_ns > _UNUSED_NS:
            self.close()
            self._asked_ns = None
        if self._asked_ns is None or self._is_ready:
            return False
        return clock.monotonic_ns() >= self._not_before_ns

    def set_up(self) -> fork_workers.Forked | None:
        """Start setting up, in a child process that shares the kernel's queue with us."""
        self.close()
        try:
            watch = self._watch = StillWatch(Path(os.fsdecode(self._root)))
        except MissingDependencyError as error:
            self._give_up(error.message, _CANNOT_NS)
            return None
        job = idle_work.start(lambda: _set_up(watch))
        if job is None:
            self._give_up("there was no process to spare", _AGAIN_NS)
        return job

    def is_set_up(self, result: Result) -> None:
        """The child process has ended with this result."""
        table, watches = result.get("table"), result.get("watches")
        if self._watch is None or not isinstance(table, dict) or not isinstance(watches, int):
            why = str(result.get("why_not", result.get("error", "it was interrupted")))
            self._give_up(why, _CANNOT_NS if "why_not" in result else _AGAIN_NS)
            return
        self._watch.take_over(table, watches)
        self._is_ready, self.why_not = True, ""
        self.read()

    def _give_up(self, why: str, pause_ns: int) -> None:
        self.close()
        self.why_not = why
        self._not_before_ns = clock.monotonic_ns() + pause_ns

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None
        self._is_ready = False


def _set_up(watch: StillWatch) -> Result:
    watch.set_up()
    return {"table": watch.table(), "watches": watch.watches}
