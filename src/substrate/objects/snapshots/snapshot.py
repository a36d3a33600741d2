"""Reading snapshots: look up, list, walk, compare. Making them is in `edit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import ROOT, RelPath, join
from substrate.objects.directory import NOTHING, Directory, Reader, Snapshot, directory_node
from substrate.objects.edit import EMPTY, build, edit

__all__ = [
    "EMPTY",
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
    """What stands at `path`; ABSENT if nothing does. The root is a directory of mode 0755."""
    if not path:
        return directory_node(reader, b"")
    above, _, name = path.rpartition(b"/")
    at = _find_directory(reader, snap, RelPath(above))
    return ABSENT if at is None else Directory(reader, at).node(name)


def listing(reader: Reader, snap: Snapshot, path: RelPath) -> dict[bytes, Node]:
    """Names and nodes in the directory at `path`; nothing if that is no directory."""
    at = _find_directory(reader, snap, path)
    return {} if at is None else dict(Directory(reader, at).nodes())


def directory(reader: Reader, snap: Snapshot, path: RelPath) -> Directory | None:
    """The directory at `path`, to ask for one name after the other; None if that is none."""
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

    A directory comes before what is in it, names in the order of their bytes.
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

    Reads only directories that differ: subtrees with equal ids are passed over.
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
    """Names that may differ: all, where the default modes do; else those whose entries do."""
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
    """Changes among `names`, and the subdirectories that must be looked into."""
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
