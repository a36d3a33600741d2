"""Collisions with other changes that only the user can decide on: the world is held."""

from __future__ import annotations

from substrate.history.record import Running, perhaps_unseen, record_entry
from substrate.history.store import HistoryStore
from substrate.model import Hold, HoldCause, display
from substrate.workspace.apply import LayerDiff

_SHOWN = 20


def collisions(
    store: HistoryStore, running: Running, diff: LayerDiff, in_git: tuple[HoldCause, ...]
) -> tuple[HoldCause, ...]:
    """Report every collision together, because the user is asked only once; empty if there is none.

    `in_git`: what collides in the user's own repository.
    """
    if running.base_known != record_entry.BESIDE:
        return in_git
    changed = [change.path for change in diff.changes()]
    found = perhaps_unseen(store, changed, running.started_ns)
    if not found:
        return in_git
    names = tuple(map(display, found[:_SHOWN]))
    more = max(0, len(found) - _SHOWN)
    return (*in_git, HoldCause(Hold.CHANGED_DURING_BASELINE, names, more))
