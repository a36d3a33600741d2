"""``run --live``: a server works on the real files for hours, and is recorded while it runs.

A child process watches the tree. After one second without a change, or after a few seconds at
most, what differs from history becomes a part of the command (`history/record/live_parts.py`). The
scan at the end finds what the watch missed. If the child cannot watch, or dies, that scan finds
everything.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from substrate.errors import LockedError, MissingDependencyError
from substrate.history.record import Running, live_parts, watched_edits
from substrate.recorder.command.rate_limit import Pace
from substrate.recorder.session_context import Place
from substrate.system import clock
from substrate.system.process import fork_workers

if TYPE_CHECKING:
    from substrate.workspace.watch import TreeWatch

_S = 1_000_000_000
_QUIET_NS, _LONGEST_NS = _S, 5 * _S
#: How long to wait for another writer; its work is usually short.
_LOCK_S = 5.0
#: Paths that change again and again are recorded less and less often, but at least this often.
_LONGEST_PAUSE_S = 300.0
_BETWEEN_READS_S = 0.1


@contextmanager
def recording(place: Place, running: Running) -> Iterator[None]:
    """Record parts of a live command while the body runs; a no-op for any other command."""
    if not running.is_live or not sys.platform.startswith("linux") or not fork_workers.can_fork():
        yield
        return
    stop, end = os.pipe()
    # The child opens its own history: an open database does not survive a fork.
    own, parent = place._replace(kept=None), os.getpid()
    child = fork_workers.fork(lambda: _record(own, running, stop, parent))
    os.close(stop)
    try:
        yield
    finally:
        try:
            os.write(end, b"x")  # others may have inherited the pipe: closing it may not be enough
        except OSError:
            pass
        os.close(end)
        if child is not None:
            child.answer()


def _record(place: Place, running: Running, stop: int, parent: int) -> int:
    """In the child: record until `stop` is readable. Returns how many parts there were."""
    from substrate.workspace import Exclusions
    from substrate.workspace.watch import TreeWatch

    if not fork_workers.end_with_parent(parent):
        return 0
    count, pace, pause_s = 0, Pace(_LONGEST_PAUSE_S), 1.0
    while True:
        try:
            watch = TreeWatch(place.workspace.root, Exclusions.load(place.workspace.root))
            watch.set_up()
            with place.existing_history() as store:
                found = watched_edits.differing_anywhere(store)
        except MissingDependencyError:
            return count  # the scan at the end finds everything
        for path, deep in found.items():
            watch.suspect(path, deep=deep)
        one = _Live(place, running, watch, count, pace)
        is_over = one.run(stop)
        watch.close()
        count = one.count
        # A lost watch (too many events at once) is set up again, with a scan: not too often.
        if is_over or select.select([stop], [], [], pause_s)[0]:
            return count
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


class _Live:
    def __init__(
        self, place: Place, running: Running, watch: TreeWatch, count: int, pace: Pace
    ) -> None:
        self.count = count
        self._pace = pace
        self._place = place
        self._running = running
        self._watch = watch
        self._first_ns = self._last_ns = clock.monotonic_ns()

    def run(self, stop: int) -> bool:
        """Run until `stop` is readable (True), or until the watch is lost (False)."""
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        poll.register(self._watch.fd, select.POLLIN)
        while not self._watch.lost:
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            if stop in ready:
                return True
            if self._watch.fd in ready:
                self._read()
                clock.sleep(_BETWEEN_READS_S)  # events come in bursts
            if self._watch.suspects and self._is_due():
                self._record()
        return False

    def _read(self) -> None:
        had_any = bool(self._watch.suspects)
        if self._watch.read():
            self._last_ns = clock.monotonic_ns()
            if not had_any:
                self._first_ns = self._last_ns

    def _due_ns(self) -> int:
        quiet_ns = min(self._last_ns + _QUIET_NS, self._first_ns + _LONGEST_NS)
        return max(quiet_ns, self._pace.not_before_ns(self._watch.suspects))

    def _is_due(self) -> bool:
        return clock.monotonic_ns() >= self._due_ns()

    def _patience_ms(self) -> int | None:
        if not self._watch.suspects:
            return None
        return max(1, (self._due_ns() - clock.monotonic_ns()) // 1_000_000 + 1)

    def _record(self) -> None:
        suspects = {path: one.deep for path, one in self._watch.suspects.items()}
        generation = self._watch.generation
        with self._place.existing_history() as store:
            differing = watched_edits.differing(store, suspects)
            if differing:
                try:
                    with store.writing("record a live command", timeout_s=_LOCK_S):
                        changes = live_parts.record_part(
                            store, self._running, self.count + 1, differing
                        )
                except LockedError:
                    self._last_ns = clock.monotonic_ns()
                    return
                if changes:
                    self.count += 1
                    self._pace.recorded(differing)
        self._watch.settled(generation)
        self._first_ns = self._last_ns = clock.monotonic_ns()
