"""Per-command history in ``.substrate-git``: record, checkpoint, undo, roll back, compact, check.

Three things on disk, in order of authority (docs/on-disk-format.md):

    index/history.db   SQLite. One transaction is the commit point of every operation; it also
                       carries the small git objects of that operation until they are packed.
    .git/              an ordinary git repository: loose objects and refs are a published copy of
                       what a transaction decided, rewritten from it after a crash.
    index/stat-cache   what the last scan saw; losing it costs time, never data.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history import changed_after as changed_after
