"""The present nodes of named paths, for callers that know where to look.

No component of a path is followed if it is a symlink: a path below one is ABSENT.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from substrate.errors import WorkspaceError
from substrate.model import ABSENT, ROOT, BlobWriter, Kind, Node, RelPath, display, join, split
from substrate.workspace.exclude import Exclusions
from substrate.workspace.paths.entry_reader import KindChangedError, TooLargeError, read_entry
from substrate.workspace.paths.nofollow_listing import UNKNOWN, ListedDirectory, Tree, raw_entry
from substrate.workspace.paths.nofollow_path import SEARCH, Directory, Walker
from substrate.workspace.paths.read_node import Seen
from substrate.workspace.scan import Entry, StatCache, node_of

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
_MOST_TRIES = 3


def observe(
    root: Path,
    paths: Iterable[RelPath],
    exclusions: Exclusions,
    blobs: BlobWriter,
    cache: StatCache | None = None,
) -> dict[RelPath, Node]:
    """The present nodes at `paths` and, for directories, at everything below.

    Excluded and unreadable paths are left out of the result: they keep the state they have. With a
    `cache`, files whose stat it knows are not read; the cache is not changed.
    """
    with Tree(root) as tree:
        observer = _Observer(tree, exclusions, blobs, cache)
        for path in paths:
            observer.observe(path)
        return observer.nodes


def node_at(root: Path, path: RelPath, blobs: BlobWriter) -> Node:
    """The present node at `path`, even if excluded; nothing below it is read.

    `WorkspaceError` if it exists and cannot be read.
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


def _look(directory: ListedDirectory, name: str, size_cap_bytes: int) -> tuple[Node, bytes | None]:
    """The node, still without its blob id, and the content to store."""
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
                continue  # removed or locked in between
            with directory:
                for name in names:
                    below = join(path, os.fsencode(name))
                    if self._entry(directory, below, name):
                        pending.append(below)

    def _entry(self, directory: ListedDirectory, path: RelPath, name: str) -> bool:
        """Record the node of `path`; returns whether it is a directory to descend into."""
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
        """The cache's entry, if its stat may be trusted."""
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


def still_so(root: Path, seen: Mapping[RelPath, Seen]) -> dict[RelPath, Seen]:
    """The files of `seen` that are unchanged; the others must be read again.

    Enough before a change that compares the bytes once more. Fastest if the files of one directory
    are next to each other.
    """
    walker, out = Walker(root), {}
    above: RelPath | None = None
    directory: Directory | None = None
    try:
        for path, one in seen.items():
            here, name = split(path)
            try:
                if here != above:
                    if directory is not None:
                        directory.close()
                    above, directory = here, None
                    directory = walker.directory(here, SEARCH)
                if directory is None:
                    continue  # the directory could not be reached a moment ago
                at = directory.lstat(name)
            except OSError:
                continue
            if one.same_inode_untouched(at):
                out[path] = one
    finally:
        if directory is not None:
            directory.close()
    return out
