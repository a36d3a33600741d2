"""First use: the state of the workspace before anything was recorded.

In a git repository the contents that the user's index vouches for are taken over without being
read, and their objects made ours at once, because a later amend and gc could take them away.
"""

from __future__ import annotations

import gc

from substrate.history.ledger import NewEntry
from substrate.history.line import Extension
from substrate.history.observe import Observation
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT
from substrate.model.paths import RelPath
from substrate.objects import borrow
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.system import clock, ids
from substrate.workspace.scan import KnownBlob, ScanResult, scan
from substrate.workspace.stat_cache import StatCache


def take(store: HistoryStore) -> None:
    """Record the baseline: the caller holds the lock and knows that there is none."""
    # Several tuples for every file of the project, all of which stay: the cycle collector would
    # look at each of them again and again (a third of the whole time).
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        _take(store)
    finally:
        if was_enabled:
            gc.enable()


def _take(store: HistoryStore) -> None:
    with store.new_batch() as batch:
        cache, result = _scan(store, batch)
        nodes = [(path, node) for path, node in sorted(result.seen.items()) if node != ABSENT]
        snapshot = snapshots.build(batch, nodes)
        parents = {path.rpartition(b"/")[0] for path, _ in nodes}
        new = NewEntry(
            ids.new_id("c"), "baseline", clock.now_ns(), "baseline",
            # As for every entry: directories count only where nothing is in them.
            changed_files=sum(path not in parents for path, _ in nodes),
            added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = Extension(store, batch, snapshot, new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
    Observation([], cache, result).save_cache(store, snapshot)


def _scan(store: HistoryStore, batch: Batch) -> tuple[StatCache, ScanResult]:
    known = _known_blobs(store)
    cache = StatCache()
    result = scan(store.root, cache, store.exclusions, batch, known=known)
    missing = _adopt(store, result.borrowed)
    if missing:  # the user's repository could not give us everything: read those files after all
        kept = {path: blob for path, blob in known.items() if blob.oid not in missing}
        cache = StatCache()
        result = scan(store.root, cache, store.exclusions, batch, known=kept)
    return cache, result


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
