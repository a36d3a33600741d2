"""First use of a large project: the baseline is taken while the first command runs.

    announce ─► fork ─► world made, command runs ──────────────┬─► its change arrives
                  └───► the baseline, in a child, in the lock ─┘

The command's world shows the present tree, and nothing of it reaches the tree before the baseline
is taken. What others change in that time may be in the baseline although the command did not see
it: for a path that both changed, the user decides (`arrival.bring_in` holds the world).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from substrate.errors import SubstrateError
from substrate.history.record import Running, record_entry
from substrate.history.store import HistoryStore
from substrate.objects.import_user import is_large
from substrate.recorder.session_context import Place
from substrate.system.process import Forked, fork_workers


def may_wait(store: HistoryStore) -> bool:
    """Whether the first command should start before the baseline is taken, and can."""
    if store.tip_commit is not None or not sys.platform.startswith("linux"):
        return False
    try:
        return fork_workers.can_fork() and is_large(store.workspace, store.exclusions)
    except OSError:
        return False  # taking the baseline reports what is wrong


class Baseline:
    """The baseline that a child takes; without a child there is nothing to wait for."""

    def __init__(self, place: Place, child: Forked | None) -> None:
        self._place = place
        self._child = child

    def wait(self) -> None:
        """Wait until it is taken, or has failed."""
        child, self._child = self._child, None
        if child is not None:
            child.answer()

    def ensure(self) -> None:
        """Call this before anything may change the tree. Raises if it cannot be taken."""
        self.wait()
        with self._place.history() as store, store.writing("first use"):
            record_entry.ensure_baseline(store)

    def known_to(self, running: Running) -> Running:
        """The command with its base, if the baseline could be taken."""
        if running.base_commit:
            return running
        self.wait()
        try:
            with self._place.history() as store:
                return running._replace(base_commit=record_entry.base_of(store, running))
        except (SubstrateError, OSError):
            return running  # recording the command will report it


@contextmanager
def baseline_beside(place: Place, running: Running) -> Iterator[Baseline]:
    """Take the baseline in a child while the body runs, if the command began without one."""
    child = None
    if not running.base_commit:
        if place.kept is not None:
            place.kept.let_go()
        own, parent = place._replace(kept=None), os.getpid()
        child = fork_workers.fork(lambda: _take(own, parent), alone=True)
    taken = Baseline(place, child)
    try:
        yield taken
    finally:
        taken.wait()


def _take(place: Place, parent: int) -> bool:
    """In the child. If it fails, the parent tries again and reports the error."""
    if not fork_workers.end_with_parent(parent):
        return False
    with place.history() as store, store.writing("first use"):
        return record_entry.ensure_baseline(store)
