"""One snapshot, as `recover` lists it."""

from __future__ import annotations

from typing import NamedTuple

from substrate.model import RelPath
from substrate.objects.snapshots import Snapshot
from substrate.objects.store import ObjectStore
from substrate.rewrite.snapshots import Kept
from substrate.workspace.apply import TrashEntry


class Found(NamedTuple):
    """One snapshot, in whichever store it is kept."""

    #: ``history``, ``rewrite``, or ``trash`` if only the trash has something.
    source: str
    ref: str
    name: str
    commit: bytes
    ts_ns: int
    operation: str
    operation_id: str
    #: The paths that restoring it puts into place.
    paths: tuple[RelPath, ...]
    #: Paths with uncommitted work; for history, all paths that the operation replaced.
    dirty_files: int
    size_bytes: int
    state: Snapshot
    reader: ObjectStore
    kept: Kept | None = None
    #: What the operation put into the trash.
    trash: tuple[TrashEntry, ...] = ()
