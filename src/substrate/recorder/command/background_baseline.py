"""First use of a large project: the baseline is taken beside the first command.

    announce ─► fork ─► world made, command runs ──────────────┬─► its change arrives
                  └───► the baseline, in a child, in the lock ─┘

The command's world shows the tree as it stands, and nothing of it reaches the tree before the
baseline is there. What others change in that time may be in the baseline although the command did
not see it: a path that both changed is not decided on by us (`worlds.bring_in` holds the world).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from substrate.errors import SubstrateError
from substrate.history import record
from substrate.history.record import Running
from substrate.history.store import HistoryStore
from substrate.objects.first_look import is_large
from substrate.recorder.place import Place
from substrate.system import forked
from substrate.system.forked import Forked


def may_wait(store: HistoryStore) -> bool:
    """Whether a first command should not wait for the baseline, and need not."""
    if store.tip_commit is not None or not sys.platform.startswith("linux"):
        return False
    try:
        return forked.can_fork() and is_large(store.workspace, store.exclusions)
    except OSError:
        return False  # whoever takes it says what is wrong


class Baseline:
    """The one that a command began without; of any other there is nothing to wait for."""

    def __init__(self, place: Place, child: Forked | None) -> None:
        self._place = place
        self._child = child

    def wait(self) -> None:
        """Until it is taken, or could not be."""
        child, self._child = self._child, None
        if child is not None:
            child.answer()

    def ensure(self) -> None:
        """Before anything may change the tree. Raises what is in the way."""
        self.wait()
        with self._place.history() as store, store.writing("first use"):
            record.ensure_baseline(store)

    def known_to(self, running: Running) -> Running:
        """The command with its base, as far as that could be had."""
        if running.base_commit:
            return running
        self.wait()
        try:
            with self._place.history() as store:
                return running._replace(base_commit=record.base_of(store, running))
        except (SubstrateError, OSError):
            return running  # told by whoever records the command


@contextmanager
def baseline_beside(place: Place, running: Running) -> Iterator[Baseline]:
    """Have the baseline taken while the body runs, if the command began without one."""
    child = None
    if not running.base_commit:
        if place.kept is not None:
            place.kept.let_go()
        own, parent = place._replace(kept=None), os.getpid()
        child = forked.fork(lambda: _take(own, parent), alone=True)
    taken = Baseline(place, child)
    try:
        yield taken
    finally:
        taken.wait()


def _take(place: Place, parent: int) -> bool:
    """In the child. What fails is met, and told, by the parent, who tries again."""
    if not forked.end_with_parent(parent):
        return False
    with place.history() as store, store.writing("first use"):
        return record.ensure_baseline(store)
