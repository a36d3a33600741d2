"""What others wrote into the real ``.git`` while a world ran, found by file times.

A directory that the world removed is removed as a whole, with everything that others put there
since: a new branch beside a deleted one, objects of a `git add` where the world's `git gc` had
packed. Such objects stay (an extra object does no harm); anything else is a collision.

A lock that another process holds now stays, too, although the layer shows it as removed. Two cases
leave such a whiteout: a git in the world released its own lock of the same name while the real one
existed, or the lock was hidden from the world (`world/process/hide_git_locks.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.model import ABSENT, Hold, HoldCause, Kind, RelPath, display
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import LayerDiff, LayerEntry
from substrate.workspace.paths import blob_id, changed_since, holds_newer

#: A new file may look older by this much: file systems use a coarser clock.
_TICK_NS = 20_000_000


class Spared(NamedTuple):
    """The change without removals of objects that others added."""

    diff: LayerDiff
    #: Directories other than those of objects.
    collisions: tuple[HoldCause, ...]


def spare_what_is_new(root: Path, upper: Path, diff: LayerDiff, since_ns: int) -> Spared:
    entries: dict[RelPath, LayerEntry] = {one.path: one for one in diff.entries}
    collisions = []
    for path, one in list(entries.items()):
        if not one.beyond or b".git" not in path.split(b"/") or not _takes_away(one):
            continue
        stands = root / os.fsdecode(path)
        if one.new == ABSENT and path.endswith(b".lock") and not _is_older(stands, since_ns):
            del entries[path]
            continue
        if not holds_newer(stands, since_ns):
            continue
        if not _is_of_objects(path):
            if one.old.kind is Kind.DIRECTORY:  # single files are compared one by one
                collisions.append(HoldCause(Hold.GIT_DIRECTORY_WRITTEN, (display(path),)))
        elif one.new == ABSENT:
            del entries[path]
        else:
            _bring_one_by_one(upper, entries, one)
    return Spared(diff._replace(entries=tuple(entries.values())), tuple(collisions))


def _is_older(path: Path, since_ns: int) -> bool:
    return os.path.lexists(path) and not changed_since(path, since_ns - _TICK_NS)


def _takes_away(one: LayerEntry) -> bool:
    if one.new == ABSENT:
        return True
    return one.is_whole and one.old.kind is Kind.DIRECTORY


def _is_of_objects(path: RelPath) -> bool:
    inside = path.split(b"/")
    inside = inside[inside.index(b".git") + 1 :]
    return b"objects" in inside[:-1] and inside[0] not in (b"refs", b"logs", b"worktrees")


def _bring_one_by_one(upper: Path, entries: dict[RelPath, LayerEntry], whole: LayerEntry) -> None:
    """Instead of replacing the directory, add the world's files to the existing ones."""
    entries[whole.path] = whole._replace(is_whole=False)
    for path, one in entries.items():
        if path.startswith(whole.path + b"/") and one.new.kind is Kind.FILE:
            data = read_bytes_or_none(upper / os.fsdecode(path)) or b""
            entries[path] = one._replace(new=one.new._replace(oid=blob_id(data)))
