"""Compare the workspace with the tip: by stat, reading only files whose stat differs."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history.store import HistoryStore
from substrate.model import BlobWriter, Change, Kind, Node, RelPath, ancestors
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch, object_id
from substrate.workspace.scan import ScanResult, StatCache, cached_node, scan


class Observation(NamedTuple):
    """What a scan found, and the updated stat cache (saved once history has recorded it)."""

    changes: list[Change]
    cache: StatCache
    scan: ScanResult

    def save_cache(self, store: HistoryStore, describes: Snapshot) -> None:
        if store.ledger.is_rehearsing:
            return
        self.cache.save(store.stat_cache_file, describes=_tag(describes))


def observe(store: HistoryStore, blobs: BlobWriter) -> Observation:
    """Scan the workspace and compare it with the tip; new contents go to `blobs`."""
    store.forget_exclusions()
    cache = StatCache.load(store.stat_cache_file)
    result = scan(store.root, cache, store.exclusions, blobs)
    described = cache.describes  # read after the scan, which empties a damaged cache
    tip = store.tip()
    candidates = dict(result.seen)
    if described != _tag(tip):
        _add_unaccounted(store, cache, described, tip, candidates)
    changes = []
    known = snapshots.Lookup(store.objects, tip)
    unreadable = {*result.unreadable}
    for path in sorted(candidates):
        if unreadable and (path in unreadable or not unreadable.isdisjoint(ancestors(path))):
            continue  # a path that could not be read counts as unchanged
        old = known.node(path)
        if old != candidates[path]:
            changes.append(Change(path, old, candidates[path]))
    return Observation(changes, cache, result)


class HashOnly:
    """A `BlobWriter` for read-only queries: hashes contents without storing them."""

    def add_blob(self, data: bytes) -> bytes:
        return object_id("blob", data)


def _add_unaccounted(
    store: HistoryStore,
    cache: StatCache,
    described: bytes,
    tip: Snapshot,
    candidates: dict[RelPath, Node],
) -> None:
    """The cache describes another state than the tip: add the paths where the two differ."""
    try:
        known = Snapshot(described[:20], described[20:]) if described else None
        between = snapshots.diff(store.objects, known, tip) if known else None
    except DamagedStoreError:  # compaction dropped the state the cache knew
        between = None
    paths = (
        [change.path for change in between]
        if between is not None
        else [path for path, _ in snapshots.walk(store.objects, tip)]
    )
    for path in paths:
        if path not in candidates:
            candidates[path] = cached_node(cache, path)


def _tag(snapshot: Snapshot) -> bytes:
    return snapshot.tree + snapshot.attrs


def edited(batch: Batch, tip: Snapshot, changes: list[Change]) -> Snapshot:
    return snapshots.edit(batch, tip, {change.path: change.new for change in changes})


def count_files(changes: list[Change]) -> int:
    """How many files, links and empty directories changed."""
    return len(changed_paths(changes))


def changed_paths(changes: list[Change]) -> list[RelPath]:
    """What a user calls "changed files": directories only if nothing below them changed."""
    with_children, last = set(), b""
    for path, _, _ in changes:
        above = path.rpartition(b"/")[0]
        if above == last:
            continue  # the usual case: changes in one directory follow each other
        last = above
        while above and above not in with_children:
            with_children.add(above)
            above = above.rpartition(b"/")[0]
    none = (Kind.DIRECTORY, Kind.ABSENT)
    return [
        path
        for path, old, new in changes
        if new.kind not in none or old.kind not in none or path not in with_children
    ]
