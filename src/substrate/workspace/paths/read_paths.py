"""The present nodes of named paths, for callers that know where to look.

No component of a path is ever followed if it is a link: what lies below one is ABSENT.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from substrate.errors import WorkspaceError
from substrate.model.nodes import ABSENT, BlobWriter, Kind, Node
from substrate.model.paths import ROOT, RelPath, display, join, split
from substrate.workspace.exclude import Exclusions
from substrate.workspace.listing import UNKNOWN, Directory, Tree, raw_entry
from substrate.workspace.reading import KindChangedError, TooLargeError, read_entry
from substrate.workspace.stat_cache import Entry, StatCache, node_of

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
_MOST_TRIES = 3


def observe(
    root: Path,
    paths: Iterable[RelPath],
    exclusions: Exclusions,
    blobs: BlobWriter,
    cache: StatCache | None = None,
) -> dict[RelPath, Node]:
    """What stands at `paths` now and, where that is a directory, at everything below.

    Excluded paths, and those that cannot be read, are left out of the answer: they keep the
    state they have. With a `cache` files whose stat it knows are not read; it is not changed.
    """
    with Tree(root) as tree:
        observer = _Observer(tree, exclusions, blobs, cache)
        for path in paths:
            observer.observe(path)
        return observer.nodes


def node_at(root: Path, path: RelPath, blobs: BlobWriter) -> Node:
    """What stands at `path` now, whatever the exclusions say; not what lies below it.

    `WorkspaceError` if it is there and cannot be read.
    """
    above, name = split(path)
    with Tree(root) as tree:
        try:
            with tree.enter(os.fsdecode(above)) as directory:
                node, content = _look(directory, os.fsdecode(name), sys.maxsize)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return ABSENT
            raise WorkspaceError(
                f"cannot read {display(path)}: {error.strerror}",
                hint="check its permissions and try again",
            ) from error
    return node if content is None else node._replace(oid=blobs.add_blob(content))


def _look(directory: Directory, name: str, size_cap_bytes: int) -> tuple[Node, bytes | None]:
    """The node, still without its blob id, and the content that is to be stored."""
    for _ in range(_MOST_TRIES):
        info = directory.lstat(name)
        if stat.S_ISDIR(info.st_mode):
            mode = stat.S_IMODE(info.st_mode)
            return Node(Kind.DIRECTORY, mode, b"", directory.xattrs_of(name)), None
        try:
            entry, content = read_entry(
                directory, raw_entry(name, info, directory.device), size_cap_bytes
            )
        except KindChangedError:
            continue
        node = node_of(entry)
        return node, content if node.has_content else None
    raise OSError(errno.EBUSY, "it changes while it is being read")


class _Observer:
    def __init__(
        self, tree: Tree, exclusions: Exclusions, blobs: BlobWriter, cache: StatCache | None
    ) -> None:
        self.tree = tree
        self.exclusions = exclusions
        self.blobs = blobs
        self.cache = cache
        self.nodes: dict[RelPath, Node] = {}
        self._opened: tuple[RelPath, dict[str, Entry]] = (ROOT, {})

    def observe(self, path: RelPath) -> None:
        if path == ROOT:
            self._below([ROOT])
            return
        if self.exclusions.reason(path, is_dir=False, size=0) is not None:
            return
        above, name = split(path)
        try:
            directory = self.tree.enter(os.fsdecode(above))
        except OSError as error:
            self._not_there(path, error)
            return
        with directory:
            is_directory = self._entry(directory, path, os.fsdecode(name))
        if is_directory:
            self._below([path])

    def _below(self, pending: list[RelPath]) -> None:
        while pending:
            path = pending.pop()
            try:
                directory = self.tree.enter(os.fsdecode(path))
                names = directory.names()
            except OSError:
                continue  # gone or locked meanwhile
            with directory:
                for name in names:
                    below = join(path, os.fsencode(name))
                    if self._entry(directory, below, name):
                        pending.append(below)

    def _entry(self, directory: Directory, path: RelPath, name: str) -> bool:
        """Note the node of `path`; whether it is a directory to go on with."""
        try:
            info = directory.lstat(name)
            raw = raw_entry(name, info, directory.device)
            is_dir = raw[1] == stat.S_IFDIR
            if raw[1] == UNKNOWN or self.exclusions.own_reason(path, is_dir=is_dir, size=raw[2]):
                return False
            if is_dir and raw[2] and directory.holds_system_files(name):
                return False
            cached = self._cached(path)
            if cached is not None and cached.stat == raw[1:] and not cached.racy:
                self.nodes[path] = node_of(cached)
                return False
            node, content = _look(directory, name, self.exclusions.size_cap_bytes)
        except TooLargeError:
            return False
        except OSError as error:
            self._not_there(path, error)
            return False
        if content is not None:
            node = node._replace(oid=self.blobs.add_blob(content))
        self.nodes[path] = node
        return node.kind is Kind.DIRECTORY

    def _not_there(self, path: RelPath, error: OSError) -> None:
        if error.errno in _NOT_THERE:
            self.nodes[path] = ABSENT

    def _cached(self, path: RelPath) -> Entry | None:
        """The cache's entry, if it may be trusted as far as its stat goes."""
        if self.cache is None:
            return None
        above, name = split(path)
        if not self._opened[1] or self._opened[0] != above:
            record = self.cache.dirs.get(os.fsdecode(above))
            self._opened = (above, record.open().entries if record is not None else {})
        entry = self._opened[1].get(os.fsdecode(name))
        if entry is None or entry.reason or entry.is_dir:
            return None
        return entry if entry.newest_ns <= self.cache.distrust_after_ns else None
