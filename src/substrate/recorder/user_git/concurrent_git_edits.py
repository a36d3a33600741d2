"""What somebody wrote into the real ``.git`` while a world was away, told by the files' times.

A directory that the world removed goes as a whole, with all that others put there since: a new
branch beside a deleted one, objects of a `git add` where the world's `git gc` had packed. Such
objects stay (one too many does no harm); anything else is a collision.

A lock that somebody holds now stays, too. The world seems to have removed it: one that shows up
there while a git has the same lock of its own leaves a whiteout when that is done, and so does
one that was taken out of the view (`world/absent.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import RelPath, display
from substrate.system.files import read_bytes_or_none
from substrate.workspace.layer import LayerDiff, LayerEntry
from substrate.workspace.newer import changed_since, holds_newer
from substrate.workspace.probe import blob_id

#: A file that was just made may look older by this much: file systems have a clock of their own.
_TICK_NS = 20_000_000


class Spared(NamedTuple):
    """The change without what would take others' objects away."""

    diff: LayerDiff
    #: Directories other than those of objects, for people.
    collisions: tuple[str, ...]


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
                collisions.append(f"something was written in {display(path)} meanwhile")
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
    """Instead of the directory: what the world has in it, beside what stands there."""
    entries[whole.path] = whole._replace(is_whole=False)
    for path, one in entries.items():
        if path.startswith(whole.path + b"/") and one.new.kind is Kind.FILE:
            data = read_bytes_or_none(upper / os.fsdecode(path)) or b""
            entries[path] = one._replace(new=one.new._replace(oid=blob_id(data)))
