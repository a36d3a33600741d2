"""First use: the state of the workspace before anything was recorded.

In a git repository, files that the user's index shows as unchanged are taken over without being
read. Their objects are copied at once, because a later amend and gc could remove them. The files
of a large project that must be read are read by several processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from substrate.history.record import sessions
from substrate.history.record.scan_against_tip import Observation
from substrate.history.store import Extension, HistoryStore, Ledger, NewEntry
from substrate.model import ABSENT, Node, RelPath, is_within
from substrate.objects.import_user import (
    WORTH_FORKING_FILES,
    FirstLook,
    first_look,
    import_user_index,
)
from substrate.objects.snapshots import ReadyDirectory, Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.system import clock, ids
from substrate.system.linux import mounts
from substrate.system.process import uncollected
from substrate.workspace.paths import KnownBlob
from substrate.workspace.scan import ScanResult, StatCache, scan


def take(
    store: HistoryStore, *, quick_from_files: int = WORTH_FORKING_FILES, save_later: bool = False
) -> None:
    """Record the baseline: the caller holds the lock and knows that there is none.

    From `quick_from_files` files on, whole directories are taken over by several processes; the
    recorded state is the same. `save_later`: leave writing the stat cache for the next scan to
    `HistoryStore.save_seen`.
    """
    with uncollected():
        save = _take(store, quick_from_files)
        if save_later:
            store.save_later(save)
        else:
            save()


def _take(store: HistoryStore, quick_from_files: int) -> Callable[[], None]:
    with store.new_batch() as batch:
        seen = _quick_scan(store, batch, quick_from_files) or _scan(store, batch)
        snapshot = snapshots.build(batch, seen.nodes.items(), seen.ready)
        new = NewEntry(
            ids.new_id("c"), "baseline", clock.now_ns(), "baseline",
            changed_files=seen.leaf_count(_other_mounts(store)), added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = Extension(store, batch, snapshot, new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
            _tell_who_began(ledger, extension.commit)
    return partial(_save, store, seen, snapshot)


def _tell_who_began(ledger: Ledger, commit: bytes) -> None:
    """Set the base of commands that started without a baseline, and of their sessions."""
    for intent in ledger.intents():
        if intent.payload.get("world_id") and not intent.payload.get("base"):
            ledger.drop_intent(intent.intent_id)
            told = {**intent.payload, "base": commit.hex()}
            ledger.add_intent(intent._replace(payload=told))
    sessions.begin_at(ledger, commit)


def _save(store: HistoryStore, seen: _Seen, snapshot: Snapshot) -> None:
    if seen.look is not None:
        seen.look.complete(seen.cache)
    Observation([], seen.cache, seen.scan).save_cache(store, snapshot)


class _Seen(NamedTuple):
    cache: StatCache
    scan: ScanResult
    nodes: dict[RelPath, Node]
    #: Directories whose files are not among the nodes, and how many files those are.
    ready: dict[RelPath, ReadyDirectory]
    ready_files: int
    #: What the cache still lacks.
    look: FirstLook | None = None

    def leaf_count(self, other_mounts: list[RelPath]) -> int:
        """The number of files; as for every entry, a directory counts only if it is empty.

        Files on `other_mounts` do not count: a world does not protect them from a command.
        """
        parents = {path.rpartition(b"/")[0] for path in self.nodes}
        parents.update(path for path, ready in self.ready.items() if ready.tree_lines)
        count = self.ready_files + sum(path not in parents for path in self.nodes)
        for mount in other_mounts:
            inside = mount + b"/"
            count -= sum(p.startswith(inside) and p not in parents for p in self.nodes)
        return count


def _quick_scan(store: HistoryStore, batch: Batch, from_files: int) -> _Seen | None:
    look = first_look(store.workspace, store.exclusions, batch, worth_files=from_files)
    if look is None:
        return None
    cache = StatCache()
    result = scan(
        store.root, cache, store.exclusions, batch, known=look.known, looked_at=look.records()
    )
    paths = result.taken_over & cache.dirs.keys()
    files = sum(look.directories[path].file_count for path in paths)
    ready = look.ready(paths)
    gone = {path: node for path, node in result.seen.items() if node == ABSENT}
    gone = {path: node for path, node in gone.items() if path.rpartition(b"/")[0] in ready}
    nodes = look.nodes(paths) | _nodes(result) | gone
    return _Seen(cache, result, nodes, ready, files, look)


def _other_mounts(store: HistoryStore) -> list[RelPath]:
    """The outermost mounts inside the workspace."""
    root = os.fsencode(store.root)
    try:
        found = mounts.below(root, mounts.mounts())
    except OSError:  # not on Linux
        return []
    outermost: list[RelPath] = []
    for path in (RelPath(os.path.relpath(target, root)) for target in found):
        if not any(is_within(path, outer) for outer in outermost):
            outermost.append(path)
    return outermost


def _nodes(result: ScanResult) -> dict[RelPath, Node]:
    return {path: node for path, node in result.seen.items() if node != ABSENT}


def _scan(store: HistoryStore, batch: Batch) -> _Seen:
    known = _known_blobs(store)
    cache = StatCache()
    result = scan(store.root, cache, store.exclusions, batch, known=known)
    missing = _adopt(store, result.borrowed)
    if missing:  # the user's repository lacks these objects: read those files after all
        kept = {path: blob for path, blob in known.items() if blob.oid not in missing}
        cache = StatCache()
        result = scan(store.root, cache, store.exclusions, batch, known=kept)
    return _Seen(cache, result, _nodes(result), {}, 0)


def _known_blobs(store: HistoryStore) -> dict[RelPath, KnownBlob]:
    workspace = store.workspace
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return {}
    return import_user_index.borrow_index(
        workspace.git_dir, workspace.git_common_dir, workspace.root
    )


def _adopt(store: HistoryStore, oids: set[bytes]) -> set[bytes]:
    """Copy borrowed objects into the store. Returns those that could not be copied."""
    common = store.workspace.git_common_dir
    if not oids or common is None:
        return set()
    return import_user_index.adopt_objects(common / "objects", store.objects, oids)
