"""First use: the state of the workspace before anything was recorded.

In a git repository the contents that the user's index vouches for are taken over without being
read, and their objects made ours at once, because a later amend and gc could take them away. What
has to be read of a large project is read by several processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from substrate.history import sessions
from substrate.history.ledger import Ledger, NewEntry
from substrate.history.line import Extension
from substrate.history.observe import Observation
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT, Node
from substrate.model.paths import RelPath
from substrate.objects import borrow
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.directory import ReadyDirectory
from substrate.objects.first_look import WORTH_FORKING_FILES, FirstLook, first_look
from substrate.objects.snapshot import Snapshot
from substrate.system import clock, ids
from substrate.system.cycles import uncollected
from substrate.workspace.scan import KnownBlob, ScanResult, scan
from substrate.workspace.stat_cache import StatCache


def take(
    store: HistoryStore, *, quick_from_files: int = WORTH_FORKING_FILES, save_later: bool = False
) -> None:
    """Record the baseline: the caller holds the lock and knows that there is none.

    Where there are so many files as `quick_from_files`, they are taken over by the directory, in
    several processes; the state recorded is the same. `save_later`: what the next scan would like
    to know is left to `HistoryStore.save_seen`.
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
            changed_files=seen.leaf_count, added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = Extension(store, batch, snapshot, new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
            _tell_who_began(ledger, extension.commit)
    return partial(_save, store, seen, snapshot)


def _tell_who_began(ledger: Ledger, commit: bytes) -> None:
    """Commands that run beside it, and their sessions, started from here."""
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

    @property
    def leaf_count(self) -> int:
        """As for every entry: directories count only where nothing is in them."""
        parents = {path.rpartition(b"/")[0] for path in self.nodes}
        parents.update(path for path, ready in self.ready.items() if ready.tree_lines)
        return self.ready_files + sum(path not in parents for path in self.nodes)


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


def _nodes(result: ScanResult) -> dict[RelPath, Node]:
    return {path: node for path, node in result.seen.items() if node != ABSENT}


def _scan(store: HistoryStore, batch: Batch) -> _Seen:
    known = _known_blobs(store)
    cache = StatCache()
    result = scan(store.root, cache, store.exclusions, batch, known=known)
    missing = _adopt(store, result.borrowed)
    if missing:  # the user's repository could not give us everything: read those files after all
        kept = {path: blob for path, blob in known.items() if blob.oid not in missing}
        cache = StatCache()
        result = scan(store.root, cache, store.exclusions, batch, known=kept)
    return _Seen(cache, result, _nodes(result), {}, 0)


def _known_blobs(store: HistoryStore) -> dict[RelPath, KnownBlob]:
    workspace = store.workspace
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return {}
    return borrow.borrow_index(workspace.git_dir, workspace.git_common_dir, workspace.root)


def _adopt(store: HistoryStore, oids: set[bytes]) -> set[bytes]:
    """Make borrowed objects ours; the ones that could not be had are returned."""
    common = store.workspace.git_common_dir
    if not oids or common is None:
        return set()
    return borrow.adopt_objects(common / "objects", store.objects, oids)
