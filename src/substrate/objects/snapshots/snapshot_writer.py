"""Make snapshots: from another one and the paths that changed, or from scratch.

Only the trees on changed paths are read and written. There is no recursion, because a
workspace may be nested deeper than Python's stack allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from substrate.model import Kind, Node, RelPath, display
from substrate.objects.snapshots.snapshot_directory import (
    NOTHING,
    Directory,
    DirectoryEdit,
    ReadyDirectory,
    ReadyEdit,
    Snapshot,
)
from substrate.objects.snapshots.trees import EMPTY_TREE
from substrate.objects.store import Batch

EMPTY = Snapshot(EMPTY_TREE)

NONE_READY: Mapping[RelPath, ReadyDirectory] = {}

_Groups = dict[bytes, dict[bytes, Node]]


def build(
    batch: Batch,
    nodes: Iterable[tuple[RelPath, Node]],
    ready: Mapping[RelPath, ReadyDirectory] = NONE_READY,
) -> Snapshot:
    """The snapshot of exactly these paths (and the directories above them).

    Directories in `ready` already have these files; `nodes` adds to them or, with ABSENT, removes
    from them.
    """
    return edit(batch, EMPTY, dict(nodes), ready)


def edit(
    batch: Batch,
    snap: Snapshot,
    changes: Mapping[RelPath, Node],
    ready: Mapping[RelPath, ReadyDirectory] = NONE_READY,
) -> Snapshot:
    """`snap` with each of these paths set to its node.

    - ABSENT removes a file, or a directory with all of its contents.
    - A directory set on a directory changes only mode and xattrs; its contents stay.
    - A missing directory above a new path is created with mode 0755.
    - A directory that loses its last entry stays, empty, unless it is set ABSENT too.
    - A path below another path that is set to a file may only be set ABSENT (else `ValueError`).
    """
    groups = _by_directory(changes, ready)
    order = sorted(groups)  # a directory precedes everything in it
    edits: dict[bytes, DirectoryEdit | None] = {}
    for path in order:
        opened: DirectoryEdit | None
        if path in ready:
            opened = ReadyEdit(Directory(batch, NOTHING), ready[RelPath(path)])
        else:
            opened = _open(batch, snap, path, edits, changes)
        edits[path] = opened
        if opened is None:
            _refuse_content(path, groups[path])
            continue
        for name, node in opened.put_plain(groups[path]).items():
            if node.kind is Kind.ABSENT:
                opened.remove(name)
            elif node.kind is not Kind.DIRECTORY:
                opened.put(name, node)
    for path in reversed(order[1:]):
        _close(batch, path, edits, changes)
    root = edits[b""]
    assert root is not None
    return root.write(batch, is_root=True)


def _by_directory(
    changes: Mapping[RelPath, Node], ready: Mapping[RelPath, ReadyDirectory]
) -> _Groups:
    """Changes by the directory they are in; every directory to be rewritten has a group."""
    groups: _Groups = {b"": {}}
    groups.update((path, {}) for path in ready)
    for path, node in changes.items():
        if not path:
            raise ValueError("the workspace itself cannot be set")
        above, _, name = path.rpartition(b"/")
        group = groups.get(above)
        if group is None:
            group = groups[above] = {}
        group[name] = node
        if node.kind is Kind.DIRECTORY:
            groups.setdefault(path, {})
    for directory in list(groups):
        above = directory.rpartition(b"/")[0]
        while above not in groups:
            groups[above] = {}
            above = above.rpartition(b"/")[0]
    return groups


def _open(
    batch: Batch,
    snap: Snapshot,
    path: bytes,
    edits: Mapping[bytes, DirectoryEdit | None],
    changes: Mapping[RelPath, Node],
) -> DirectoryEdit | None:
    """The previous directory at `path`; None if the path becomes a file or the like."""
    if not path:
        return DirectoryEdit(Directory(batch, snap), existed=True)
    above, _, name = path.rpartition(b"/")
    parent, change = edits[above], changes.get(RelPath(path))
    if parent is None or (change is not None and change.kind not in (Kind.ABSENT, Kind.DIRECTORY)):
        return None
    at = parent.base.subdirectory(name)
    if at is None or (change is not None and change.kind is Kind.ABSENT):
        return DirectoryEdit(Directory(batch, NOTHING), existed=False)
    return DirectoryEdit(Directory(batch, at), existed=True)


def _refuse_content(path: bytes, group: Mapping[bytes, Node]) -> None:
    for name, node in group.items():
        if node.kind is not Kind.ABSENT:
            raise ValueError(f"{display(path)} cannot both be a file and hold {display(name)}")


def _close(
    batch: Batch,
    path: bytes,
    edits: Mapping[bytes, DirectoryEdit | None],
    changes: Mapping[RelPath, Node],
) -> None:
    """Write the directory at `path` and add it to its parent."""
    done, change = edits[path], changes.get(RelPath(path))
    if done is None:
        return
    if change is not None and change.kind is Kind.DIRECTORY:
        done.set_own(change)
    elif not done.existed and done.is_empty:
        return
    at = done.write(batch)
    above, _, name = path.rpartition(b"/")
    parent = edits[above]
    assert parent is not None
    if at != done.base.at or not done.existed:
        parent.put_directory(name, at)
