"""The excluded files that a command wrote, changed or removed, for fs_diff.

The layer names every new file. The files of a removed directory are in the trash.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from substrate.history.record import Excluded, excluded_paths
from substrate.model import Kind, RelPath, display, is_within, join
from substrate.recorder.session_context import Place
from substrate.trace import FsDiff
from substrate.workspace.apply import LayerDiff, LayerEntry, Trash, TrashEntry

_MOST_NAMED = 8


def arrived(diff: LayerDiff, did: Excluded, trash: Trash, command_id: str) -> FsDiff:
    """The files of a change that is in the tree; `did` says which paths really differ."""
    if not did.paths():
        return FsDiff()
    came = [one.path for one in diff.entries if _is_file_there(one)]
    old = _files_in(trash.under(command_id), did) if did.changed or did.removed else set()
    new = set(_within(came, {*did.created, *did.changed}))
    return _sorted(new - old, new & old, old - new)


def held(diff: LayerDiff) -> FsDiff:
    """The files of a change that is held in its world, as far as the layer shows."""
    found = [one for one in diff.entries if one.beyond and not excluded_paths.is_in_git(one.path)]
    was = {one.path for one in found if one.old.kind not in (Kind.ABSENT, Kind.DIRECTORY)}
    gone = {one.path for one in found if one.new.kind is Kind.ABSENT}
    came = {one.path for one in found if _is_file_there(one)}
    return _sorted(came - was, came & was, gone)


def unprotected(place: Place, gone: Iterable[bytes]) -> FsDiff:
    """Excluded paths that a command without a world removed or replaced."""
    deletes: set[RelPath] = set()
    mods: set[RelPath] = set()
    for path in map(RelPath, gone):
        is_there = os.path.lexists(place.workspace.root / os.fsdecode(path))
        (mods if is_there else deletes).add(path)
    return _sorted(set(), mods, deletes)


def directories(place: Place, paths: Iterable[RelPath]) -> str:
    """Those of the paths that are directories, as text."""
    root = os.fsencode(place.workspace.root)
    found = [display(path) for path in paths if os.path.isdir(os.path.join(root, path))]
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_file_there(one: LayerEntry) -> bool:
    if not one.beyond or one.new.kind in (Kind.ABSENT, Kind.DIRECTORY):
        return False
    return not excluded_paths.is_in_git(one.path)


def _files_in(items: Iterable[TrashEntry], did: Excluded) -> set[RelPath]:
    wanted = {*did.changed, *did.removed}
    return {path for item in items if item.path in wanted for path in _files_of(item)}


def _files_of(item: TrashEntry) -> Iterator[RelPath]:
    if item.kind is not Kind.DIRECTORY or item.path.rpartition(b"/")[2] == b".git":
        yield item.path
        return
    top = os.fsencode(item.location)
    is_empty = True
    for where, directories, names in os.walk(top):
        at = RelPath(item.path + where[len(top) :])
        links = [name for name in directories if os.path.islink(os.path.join(where, name))]
        for name in (*names, *links):
            is_empty = False
            yield join(at, name)
    if is_empty:
        yield item.path


def _within(paths: Iterable[RelPath], tops: set[RelPath]) -> Iterator[RelPath]:
    """The paths at or below `tops`. `paths` is sorted: most have the same top as the previous."""
    top: RelPath | None = None
    for path in paths:
        if top is None or not is_within(path, top):
            top = next((one for one in _upwards(path) if one in tops), None)
        if top is not None:
            yield path


def _upwards(path: bytes) -> Iterator[RelPath]:
    while path:
        yield RelPath(path)
        path = path.rpartition(b"/")[0]


def _sorted(writes: set[RelPath], mods: set[RelPath], deletes: set[RelPath]) -> FsDiff:
    return FsDiff(tuple(sorted(writes)), tuple(sorted(mods)), tuple(sorted(deletes)))
