"""Whether a path outside history (an excluded one, or one inside a `.git`) changed after an entry.

The time of change tells, but an undo or redo that moved the path sets it, too:

    c1 writes config    u2 (undo of c1)    r3 (redo of u2)    undo of c1 again

In the last step config's time of change is r3's. It counts as unchanged if r3 was the last to
move it, and its time of writing is older than the end of c1.
"""

from __future__ import annotations

import os

from substrate.history.arrival import GIT_BACK
from substrate.history.record import excluded_paths
from substrate.history.store import Entry, HistoryStore
from substrate.model import RelPath
from substrate.workspace.paths import holds_newer

#: Entries that record which paths outside history they moved.
MOVING_KINDS = ("undo", "redo", "rollback")


def end_of(entry: Entry) -> int:
    """When the last path of an entry arrived."""
    arrived = entry.detail.get(excluded_paths.ARRIVED)
    return arrived if isinstance(arrived, int) else entry.ts_ns


def is_changed(store: HistoryStore, entry: Entry, path: RelPath) -> bool:
    """Whether another process wrote or replaced it after the entry."""
    at = store.root / os.fsdecode(path)
    since_ns = end_of(entry)
    if not holds_newer(at, since_ns):
        return False
    if at.is_dir() and not at.is_symlink():
        return True  # moving a directory changes no time of the files below it
    moved_ns = _moved_by_us(store, entry, path)
    now = os.lstat(at)
    return now.st_ctime_ns >= moved_ns or now.st_mtime_ns >= since_ns


def _moved_by_us(store: HistoryStore, entry: Entry, path: RelPath) -> int:
    """The end of the newest undo or redo after `entry` that moved `path`; 0 if there is none."""
    for later in store.ledger.live(after_pos=entry.pos):
        if later.kind not in MOVING_KINDS or later.seq == entry.seq:
            continue
        moved = excluded_paths.of_detail(later.detail).paths()
        if path in moved or path in excluded_paths.unpacked(later.detail.get(GIT_BACK)):
            return end_of(later)
    return 0
