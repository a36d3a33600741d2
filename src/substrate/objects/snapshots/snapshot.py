"""Read snapshots: look up, list, walk, compare. `snapshot_writer` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from substrate.model import ABSENT, ROOT, Change, Kind, Node, RelPath, join, parent
from substrate.objects.snapshots.snapshot_directory import (
    NOTHING,
    Directory,
    Reader,
    Snapshot,
    directory_node,
)
from substrate.objects.snapshots.snapshot_writer import EMPTY, build, edit

__all__ = [
    "EMPTY",
    "Lookup",
    "Reader",
    "Snapshot",
    "build",
    "diff",
    "directory",
    "edit",
    "listing",
    "lookup",
    "walk",
]


def lookup(reader: Reader, snap: Snapshot, path: RelPath) -> Node:
    """The node at `path`; ABSENT if there is none. The root is a directory of mode 0755."""
    if not path:
        return directory_node(reader, b"")
    above, _, name = path.rpartition(b"/")
    at = _find_directory(reader, snap, RelPath(above))
    return ABSENT if at is None else Directory(reader, at).node(name)


class Lookup:
    """`lookup` for many paths of one snapshot: each directory is found and read once."""

    def __init__(self, reader: Reader, snap: Snapshot) -> None:
        self._reader = reader
        self._snap = snap
        self._directories: dict[RelPath, Directory | None] = {}

    def node(self, path: RelPath) -> Node:
        if not path:
            return directory_node(self._reader, b"")
        at = self.directory(parent(path))
        return ABSENT if at is None else at.node(path.rpartition(b"/")[2])

    def directory(self, path: RelPath) -> Directory | None:
        """The directory at `path`; None if it is not a directory."""
        missing = []
        while path not in self._directories and path:
            missing.append(path)
            path = parent(path)
        if not path and not self._directories:
            self._directories[ROOT] = Directory(self._reader, self._snap)
        at = self._directories[path]
        for below in reversed(missing):
            found = at.subdirectory(below.rpartition(b"/")[2]) if at is not None else None
            at = None if found is None else Directory(self._reader, found)
            self._directories[below] = at
        return at


def listing(reader: Reader, snap: Snapshot, path: RelPath) -> dict[bytes, Node]:
    """Names and nodes in the directory at `path`; empty if it is not a directory."""
    at = _find_directory(reader, snap, path)
    return {} if at is None else dict(Directory(reader, at).nodes())


def directory(reader: Reader, snap: Snapshot, path: RelPath) -> Directory | None:
    """The directory at `path`, to look up several names; None if it is not a directory."""
    at = _find_directory(reader, snap, path)
    return None if at is None else Directory(reader, at)


def _find_directory(reader: Reader, snap: Snapshot, path: RelPath) -> Snapshot | None:
    at: Snapshot | None = snap
    for name in path.split(b"/") if path else []:
        if at is None:
            return None
        at = Directory(reader, at).subdirectory(name)
    return at


def walk(reader: Reader, snap: Snapshot, scope: RelPath = ROOT) -> Iterator[tuple[RelPath, Node]]:
    """Every path in `scope`, the scope itself included (but not the root).

    A directory precedes its contents; names are in byte order.
    """
    if scope:
        node = lookup(reader, snap, scope)
        if node.kind is Kind.ABSENT:
            return
        yield scope, node
    at = _find_directory(reader, snap, scope)
    if at is None:
        return
    stack = [_directory_content(reader, scope, at)]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        path, node, below = step
        yield path, node
        if below is not None:
            stack.append(_directory_content(reader, path, below))


def _directory_content(
    reader: Reader, path: RelPath, at: Snapshot
) -> Iterator[tuple[RelPath, Node, Snapshot | None]]:
    directory = Directory(reader, at)
    for name, node in directory.nodes():
        below = directory.subdirectory(name) if node.kind is Kind.DIRECTORY else None
        yield join(path, name), node, below


def diff(reader: Reader, a: Snapshot, b: Snapshot, scope: RelPath = ROOT) -> list[Change]:
    """Every path in `scope` that differs, sorted by path, directories included.

    Reads only directories that differ: subtrees with equal ids are skipped.
    """
    changes: list[Change] = []
    stack: list[tuple[RelPath, Snapshot, Snapshot]] = []
    path = ROOT
    for name in scope.split(b"/") if scope else []:
        if a == b:
            return []
        pair = _compare(Directory(reader, a), Directory(reader, b), path, {name})
        path = join(path, name)
        if path == scope:
            changes += pair[0]
        a, b = (pair[1][0][1], pair[1][0][2]) if pair[1] else (NOTHING, NOTHING)
    stack.append((scope, a, b))
    while stack:
        path, a, b = stack.pop()
        if a == b:
            continue
        old, new = Directory(reader, a), Directory(reader, b)
        found, below = _compare(old, new, path, _candidates(old, new))
        changes += found
        stack += below
    changes.sort(key=lambda change: change.path)
    return changes


def _candidates(old: Directory, new: Directory) -> set[bytes]:
    """Names that may differ: all if the default modes differ, else those whose entries differ."""
    was, now = old.record, new.record
    if (was.file_mode, was.exec_mode) != (now.file_mode, now.exec_mode):
        return old.names() | new.names()
    return (
        _differing(was.entries, now.entries)
        | _differing(old.tree, new.tree)
        | _differing(old.forbidden, new.forbidden)
        | _differing(old.subdirs, new.subdirs)
    )


def _differing(left: Mapping[bytes, object], right: Mapping[bytes, object]) -> set[bytes]:
    names = {name for name, value in left.items() if right.get(name) != value}
    return names | (right.keys() - left.keys())


def _compare(
    old: Directory, new: Directory, path: RelPath, names: set[bytes]
) -> tuple[list[Change], list[tuple[RelPath, Snapshot, Snapshot]]]:
    """Changes among `names`, and the subdirectories to compare."""
    changes: list[Change] = []
    below: list[tuple[RelPath, Snapshot, Snapshot]] = []
    for name in names:
        old_dir, new_dir = old.subdirectory(name), new.subdirectory(name)
        if old_dir is not None and old_dir == new_dir:
            continue
        here = join(path, name)
        was, now = old.node(name), new.node(name)
        if was != now:
            changes.append(Change(here, was, now))
        if old_dir is not None or new_dir is not None:
            below.append((here, old_dir or NOTHING, new_dir or NOTHING))
    return changes, below
