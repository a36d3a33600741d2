"""Finding what differs on disk from the last scan, reading only files whose stat changed.

    for every directory, from the root down:
        signature as recorded?   nothing changed in it; go on with its subdirectories
        otherwise                compare its entries one by one; read those whose stat differs

What a scan cannot see: a write through a shared memory mapping that changes no time stamp until the
kernel writes the page back. The scan after that finds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from substrate.errors import WorkspaceError
from substrate.model import BlobWriter, RelPath
from substrate.system.process import can_fork
from substrate.workspace.exclude import Exclusions
from substrate.workspace.paths import (
    KindChangedError,
    KnownBlob,
    ListedDirectory,
    Listing,
    Tree,
    node_at,
    observe,
)
from substrate.workspace.scan.compare import Comparison, ScanResult
from substrate.workspace.scan.scan_workers import Looks, look_in_parallel, worker_count
from substrate.workspace.scan.stat_cache import (
    UNSIGNED,
    CacheDamagedError,
    DirRecord,
    Payload,
    StatCache,
    cached_node,
    cached_nodes,
    directory_node,
)

__all__ = [
    "KnownBlob",
    "ScanResult",
    "StatCache",
    "cached_node",
    "cached_nodes",
    "node_at",
    "observe",
    "scan",
]

#: How often a directory is listed again because an entry changed kind in between.
_MOST_TRIES = 3
_RESTLESS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK)


def scan(
    workspace_root: Path,
    cache: StatCache,
    exclusions: Exclusions,
    blobs: BlobWriter,
    *,
    workers: int | None = None,
    known: Mapping[RelPath, KnownBlob] | None = None,
    looked_at: Mapping[str, DirRecord] | None = None,
) -> ScanResult:
    """Bring `cache` up to date with the disk and return what may have changed.

    With an empty cache everything is in `seen`. The cache is changed in memory: if the result is
    not recorded after all, discard the cache too. `workers` is chosen by size unless given.
    Directories in `looked_at` were listed just now: their records are taken over and are not in
    `seen`, and only those without a signature are listed again for the rest; see `taken_over`. A
    damaged cache is emptied (`cache.reason`, `cache.describes`), so read `describes` after the
    scan, not before.
    """
    try:
        tree = Tree(workspace_root)
    except OSError as error:
        raise _unreadable_root(os.fspath(workspace_root), error) from error
    with tree:
        try:
            one = _Scan(tree, cache, exclusions, blobs, known or {})
            one.looked_at.update(looked_at or {})
            return one.run(workers)
        except CacheDamagedError:
            cache.clear("the cache is damaged")
            return _Scan(tree, cache, exclusions, blobs, known or {}).run(workers)


class _Scan:
    def __init__(
        self,
        tree: Tree,
        cache: StatCache,
        exclusions: Exclusions,
        blobs: BlobWriter,
        known: Mapping[RelPath, KnownBlob],
    ) -> None:
        self.tree = tree
        self.cache = cache
        self.rules = exclusions.fingerprint
        self.result = ScanResult()
        self.comparison = Comparison(cache, exclusions, blobs, known, self.result)
        self.pending = [""]
        self.done: set[str] = set()
        self.tries: dict[str, int] = {}
        self.looks: Looks = {}
        self.looked_at: dict[str, DirRecord] = {}

    def run(self, workers: int | None) -> ScanResult:
        # With other rules every entry must be checked again, though few will be read.
        same_rules = self.cache.rules == self.rules
        if same_rules:
            count = worker_count(self.cache) if workers is None else workers
            if count > 1 and can_fork():
                self.looks = look_in_parallel(self.tree, self.cache, count)
        while self.pending:
            path = self.pending.pop()
            if path not in self.done:
                self.done.add(path)
                self.directory(path, same_rules)
        self.cache.rules = self.rules
        self.cache.trust()
        return self.result

    def directory(self, path: str, same_rules: bool) -> None:
        fresh = self.looked_at.pop(path, None)
        if fresh is not None:
            self.cache.put(path, fresh)
            self.result.taken_over.add(path)
            if fresh.signature:
                self.unchanged(path, fresh)
                return
        record = self.cache.dirs.get(path)
        listing: Listing | None = None
        if record is not None and record.signature and same_rules:
            if path in self.looks:
                listing = self.looks.pop(path)
                if listing is None:
                    self.unchanged(path, record)
                    return
            else:
                listing = self.tree.quick_listing(path)
                if listing is not None and listing.signature == record.signature:
                    self.unchanged(path, record)
                    return
        try:
            directory = self.tree.enter(path)
        except OSError as error:
            self.cannot_enter(path, error)
            return
        with directory:
            self.look_closer(path, directory, listing)

    def unchanged(self, path: str, record: DirRecord) -> None:
        prefix = path + "/" if path else ""
        self.result.unchanged_count += record.entry_count
        for name, reason in record.excluded.items():
            self.result.excluded[_rel(prefix + name)] = reason
        for name in record.specials:
            self.result.specials.append(_rel(prefix + name))
        for name in record.subdirs:
            self.pending.append(prefix + name)

    def look_closer(self, path: str, directory: ListedDirectory, listing: Listing | None) -> None:
        tries = self.tries[path] = self.tries.get(path, 0) + 1
        try:
            # The quick listing may show another directory than the open one.
            if listing is None or listing.own != directory.own():
                listing = directory.listing()
        except OSError as error:
            self.unreadable(path, error)
            return
        try:
            record = self.comparison.compare(
                path, directory, listing, last_try=tries >= _MOST_TRIES
            )
        except KindChangedError:
            self.list_again(path)
            return
        self.cache.put(path, record)
        prefix = path + "/" if path else ""
        self.pending += [prefix + name for name in record.subdirs]

    def list_again(self, path: str) -> None:
        below = path + "/" if path else ""
        for stale in [one for one in self.looked_at if one.startswith(below)]:
            del self.looked_at[stale]  # what was listed there may be gone, too
        record = self.cache.dirs.get(path)
        if record is not None and record.signature == UNSIGNED:
            self.cache.drop(path)  # nothing is known of its entries yet
            self.result.taken_over.discard(path)
        self.forget_signature(path)
        self.done.discard(path)
        self.pending.append(path)

    def cannot_enter(self, path: str, error: OSError) -> None:
        """A directory that its parent lists is gone, replaced, or not accessible."""
        parent = path.rpartition("/")[0]
        if path and error.errno in _RESTLESS and self.tries.get(parent, 0) < _MOST_TRIES:
            self.list_again(parent)
            # In the new listing it may be a directory after all.
            self.done.discard(path)
            return
        self.unreadable(path, error)

    def unreadable(self, path: str, error: OSError) -> None:
        """Keep what is known of the directory and all below; only its mode can have changed."""
        if not path:
            raise _unreadable_root(self.tree.root, error) from error
        self.result.unreadable[_rel(path)] = error.strerror or str(error)
        record = self.cache.dirs.get(path)
        old = record.open() if record is not None else Payload(0, 0, 0, True, (), {})
        parent, _, name = path.rpartition("/")
        try:
            with self.tree.enter(parent) as above:
                mode = above.lstat(name).st_mode
        except OSError:
            self.forget_signature(path)
            return
        new = old._replace(mode=mode, racy=True)
        if record is None or directory_node(new) != directory_node(old):
            self.result.seen[_rel(path)] = directory_node(new)
        record = record or DirRecord(b"", [], {}, [], 0, 0, b"")
        self.cache.put(path, record._replace(signature=b"", payload=new.pack()))

    def forget_signature(self, path: str) -> None:
        record = self.cache.dirs.get(path)
        if record is not None:
            self.cache.put(path, record._replace(signature=b""))


def _rel(text: str) -> RelPath:
    return RelPath(os.fsencode(text))


def _unreadable_root(root: str, error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"the workspace {root} cannot be read: {error.strerror}",
        hint="check that it exists and that its permissions let you list it",
    )
