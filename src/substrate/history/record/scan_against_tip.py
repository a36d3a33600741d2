"""The workspace against the tip: what differs, found by stat, read only where stat differs."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history.store import HistoryStore
from substrate.model.nodes import BlobWriter, Change, Kind, Node
from substrate.model.paths import RelPath, is_within
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.loose import object_id
from substrate.objects.snapshot import Snapshot
from substrate.workspace.scan import ScanResult, cached_node, scan
from substrate.workspace.stat_cache import StatCache


class Observation(NamedTuple):
    """What a scan found, and the cache that knows it (saved once history knows it too)."""

    changes: list[Change]
    cache: StatCache
    scan: ScanResult

    def save_cache(self, store: HistoryStore, describes: Snapshot) -> None:
        self.cache.save(store.stat_cache_file, describes=_tag(describes))


def observe(store: HistoryStore, blobs: BlobWriter) -> Observation:
    """Scan the workspace and compare with the tip; contents that are new go to `blobs`."""
    store.forget_exclusions()
    cache = StatCache.load(store.stat_cache_file)
    result = scan(store.root, cache, store.exclusions, blobs)
    described = cache.describes  # asked after the scan: a cache found damaged was emptied
    tip = store.tip()
    candidates = dict(result.seen)
    if described != _tag(tip):
        _add_unaccounted(store, cache, described, tip, candidates)
    changes = []
    for path in sorted(candidates):
        if _is_hidden(path, result):
            continue
        old = snapshots.lookup(store.objects, tip, path)
        if old != candidates[path]:
            changes.append(Change(path, old, candidates[path]))
    return Observation(changes, cache, result)


class HashOnly:
    """A `BlobWriter` for questions: names contents without keeping them."""

    def add_blob(self, data: bytes) -> bytes:
        return object_id("blob", data)


def _add_unaccounted(
    store: HistoryStore,
    cache: StatCache,
    described: bytes,
    tip: Snapshot,
    candidates: dict[RelPath, Node],
) -> None:
    """The cache knew another state than the tip: what lies between the two may differ as well."""
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


def _is_hidden(path: RelPath, result: ScanResult) -> bool:
    """Paths that could not be read say nothing about themselves."""
    return any(is_within(path, unreadable) for unreadable in result.unreadable)


def _tag(snapshot: Snapshot) -> bytes:
    return snapshot.tree + snapshot.attrs


def edited(batch: Batch, tip: Snapshot, changes: list[Change]) -> Snapshot:
    return snapshots.edit(batch, tip, {change.path: change.new for change in changes})


def count_files(changes: list[Change]) -> int:
    """Files and links among the changes, and directories that came or went empty."""
    return len(changed_paths(changes))


def changed_paths(changes: list[Change]) -> list[RelPath]:
    """What a person calls "changed files": directories only if nothing below them changed."""
    with_children, last = set(), b""
    for path, _, _ in changes:
        above = path.rpartition(b"/")[0]
        if above == last:
            continue  # as for most: neighbours come one after the other
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
