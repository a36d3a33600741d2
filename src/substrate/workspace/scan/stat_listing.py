"""Changes in a place without history: two bounded listings, compared by size, time and inode.

The directory that the command starts in is listed first, then the rest, breadth first, until the
limit is reached. Only directories that were listed completely are compared.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from substrate.model import ABSENT, ROOT, Change, Kind, Node, RelPath, is_within, join
from substrate.workspace.paths import kind_of

#: Largest number of entries to list, before the command and after it.
MOST_ENTRIES = 8_000

Names = dict[bytes, Node]


class Listing(NamedTuple):
    """Directories below `root` that were listed completely, and their entries."""

    root: Path
    directories: dict[RelPath, Names]
    #: Some directories were left out: there are too many entries.
    is_cut: bool


def list_tree(
    root: Path, first: RelPath = ROOT, leave_out: Collection[RelPath] = (), most: int = MOST_ENTRIES
) -> Listing:
    """List `first`, then all of `root`, up to `most` entries, without other file systems."""
    return _list(root, [first, ROOT], leave_out, most)


def list_again(before: Listing, leave_out: Collection[RelPath] = ()) -> Listing:
    """The same directories again, and new directories below them."""
    known = {
        join(directory, name)
        for directory, names in before.directories.items()
        for name, node in names.items()
        if node.kind is Kind.DIRECTORY
    }
    room = 2 * sum(map(len, before.directories.values())) + MOST_ENTRIES
    return _list(before.root, sorted(before.directories), leave_out, room, known)


def changes(before: Listing, after: Listing) -> list[Change]:
    """The differences in the directories that `before` has, sorted by path."""
    found: dict[RelPath, Change] = {}
    for directory, names in before.directories.items():
        now = after.directories.get(directory, {})
        for name in names.keys() | now.keys():
            old, new = names.get(name, ABSENT), now.get(name, ABSENT)
            if old != new:
                path = join(directory, name)
                found[path] = Change(path, old, new)
    for directory, now in after.directories.items():
        if directory not in before.directories:
            for name, new in now.items():
                path = join(directory, name)
                found.setdefault(path, Change(path, ABSENT, new))
    return [found[path] for path in sorted(found)]


def _list(
    root: Path,
    start: list[RelPath],
    leave_out: Collection[RelPath],
    most: int,
    known: Collection[RelPath] = (),
) -> Listing:
    """List `start` and everything below, without descending into the `known` directories."""
    device = os.stat(root).st_dev
    out: dict[RelPath, Names] = {}
    waiting, room, is_cut = deque(start), most, False
    while waiting:
        directory = waiting.popleft()
        if directory in out or any(is_within(directory, one) for one in leave_out):
            continue
        names = _names(os.fsencode(root), directory, device, leave_out, room)
        if names is None:
            continue
        if len(names) > room:
            is_cut = True
            continue
        room -= len(names)
        out[directory] = names
        for name, node in names.items():
            below = join(directory, name)
            if node.kind is Kind.DIRECTORY and below not in known:
                waiting.append(below)
    return Listing(root, out, is_cut)


def _names(
    root: bytes, directory: RelPath, device: int, leave_out: Collection[RelPath], most: int
) -> Names | None:
    """The entries of a directory; one more than `most` if there are too many."""
    names: Names = {}
    try:
        with os.scandir(os.path.join(root, directory) if directory else root) as entries:
            for entry in entries:
                path = join(directory, entry.name)
                if path in leave_out:
                    continue
                try:
                    at = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if at.st_dev == device:
                    names[entry.name] = _node(at)
                if len(names) > most:
                    break
    except OSError:
        return None
    return names


def _node(at: os.stat_result) -> Node:
    kind = kind_of(at)
    if kind is Kind.DIRECTORY:
        return Node(kind, at.st_mode & 0o7777)
    stamp = f"{at.st_size} {at.st_mtime_ns} {at.st_ino}".encode()
    return Node(kind, 0 if kind is Kind.SYMLINK else at.st_mode & 0o7777, stamp)
