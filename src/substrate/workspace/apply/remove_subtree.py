"""Phase two for directories removed with everything in them: one rename, not one per file.

    tree: src/ ──rename──► scratch: 7.old/      each file is the one that was read: go on
                                                anything else in it: back, and path by path

Renaming a directory does not touch the files in it, so a file that was read before and has the same
stat afterwards is unchanged. Only then the directory is removed, and each file is checked once
more: a process may still be in that directory, or have a file open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from substrate.model import ABSENT, Kind, RelPath, ancestors, join
from substrate.system.process import AtOnce
from substrate.workspace.apply.apply_context import Item, OnItem, Site, State, Step
from substrate.workspace.apply.dispose_displaced import Verdict, judge
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import Directory, Walker, rename_whatever_mode

OLD = b".old"
#: With fewer, removing path by path costs no more.
_SEVERAL = 8
_KINDS = (Kind.FILE, Kind.SYMLINK, Kind.FIFO)
#: A name in a directory, its path in the tree, and the item for that path.
_Found = tuple[bytes, RelPath, Item | None]


def gather(items: list[Item]) -> None:
    """Find the topmost directories that can be removed as a whole, and what goes with each."""
    if not any(
        item.op.become == ABSENT and item.seen.node.kind is Kind.DIRECTORY for item in items
    ):
        return
    leaving, shared = {}, set()
    for item in items:
        if item.state is State.ALREADY and item.seen.node == ABSENT:
            continue
        if _goes(item):
            if item.seen.node.kind is Kind.DIRECTORY:
                leaving[item.path] = item
        elif not (item.keep and item.op.become == ABSENT and item.state is State.TODO):
            shared.update(ancestors(item.path))  # something here stays, or its state is not known
    tops = {
        path: item
        for path, item in leaving.items()
        if path not in shared
        and not any(above in leaving and above not in shared for above in ancestors(path))
    }
    _assign(items, tops)


def _assign(items: list[Item], tops: dict[RelPath, Item]) -> None:
    below: dict[RelPath, list[Item]] = {path: [] for path in tops}
    for item in items:
        if _goes(item):
            for above in ancestors(item.path):
                if above in below:
                    below[above].append(item)
    for path, top in tops.items():
        if len(below[path]) >= _SEVERAL:
            top.takes = below[path]
            for item in top.takes:
                item.is_taken = True


def _goes(item: Item) -> bool:
    """History has it, it exists, and it can be removed after its directory was moved."""
    if item.state is not State.TODO or item.unseen or item.keep or item.op.become != ABSENT:
        return False
    if item.seen.node.kind is not Kind.DIRECTORY:
        return item.seen.node.kind in _KINDS
    at = item.seen.stat
    if os.name == "nt" or at is None:
        return False
    return os.geteuid() == 0 or (at.st_uid == os.geteuid() and at.st_mode & 0o700 == 0o700)


def take_out(site: Site, item: Item) -> list[Step] | None:
    """Move the directory of `item` aside, if nothing changed since; None: go path by path."""
    parent, name = site.walker.parent_of(item.path)
    with parent:
        if site.look(parent, name, item.path).node != item.seen.node:
            return None
        slot = site.slot(item, OLD)
        try:
            rename_whatever_mode(parent, name, *slot)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            return None  # another mount, in use, gone: going path by path finds out
    step = TakenWhole(item)
    try:
        is_as_seen = _is_as_seen(site, item)
    except BaseException:
        step.undo(site)
        raise
    if not is_as_seen:
        step.undo(site)
        return None
    site.walker.close()
    site.openings.forget(item.path)
    site.touch(item.path)
    for one in item.takes:
        one.state = State.DONE
    return [step]


def _is_as_seen(site: Site, item: Item) -> bool:
    moved = _Moved(site, item)
    try:
        for directory, found in moved.by_directory():
            if not all(_is_one_as_seen(site, directory, one) for one in found):
                return False
    except OSError:
        return False
    return True


def _is_one_as_seen(site: Site, directory: Directory, one: _Found) -> bool:
    name, path, known = one
    if known is None:
        return False  # put there since
    if known.seen.is_settled and known.seen.same_inode_untouched(directory.lstat(name)):
        return True
    return site.look(directory, name, path).node == known.seen.node


class TakenWhole(OnItem):
    def undo(self, site: Site) -> None:
        item = self.item
        slot, slot_name = site.slot(item, OLD)
        parent, name = site.walker.parent_of(item.path)
        with parent:
            try:
                rename_whatever_mode(slot, slot_name, parent, name)
            except FileExistsError:
                # Another process created a new one since. It stays, and the old one goes to the
                # trash.
                site.to_trash(slot, slot_name, item.path, Kept(TrashReason.PATH_TAKEN))
            site.touch(item.path)

    def settle(self, site: Site) -> None:
        """Remove what history has; anything changed or added since goes to the trash."""
        moved = _Moved(site, self.item)
        try:
            with AtOnce() as several:
                for directory, found in moved.by_directory():
                    _let_go(site, directory, found, several)
            moved.remove_directories()
        except OSError as error:
            why = Kept(TrashReason.NOT_REMOVABLE, error.strerror or str(error))
            site.to_trash(*site.slot(self.item, OLD), self.item.path, why)


def _let_go(site: Site, directory: Directory, found: list[_Found], several: AtOnce) -> None:
    """Check and remove each entry in the same thread, with nothing in between."""
    stays: list[tuple[bytes, RelPath, Kept]] = []

    def remove(one: _Found) -> None:
        name, path, known = one
        verdict: Kept | Verdict = Kept(TrashReason.ADDED)
        if known is not None:
            if known.seen.node.kind is Kind.DIRECTORY:
                return
            verdict = judge(directory, name, known.op.expect, known.seen)
        if verdict is Verdict.DROP:
            directory.unlink(name)
        elif isinstance(verdict, Kept):
            stays.append((name, path, verdict))

    several.for_each(remove, found)
    for name, path, why in stays:
        site.to_trash(directory, name, path, why)


class _Moved:
    """The directory at its present place in scratch."""

    def __init__(self, site: Site, item: Item) -> None:
        self._site = site
        self._top = item.path
        self._known = {one.path: one for one in item.takes}
        self._at = RelPath(site.slot(item, OLD)[1])
        self._walker = Walker(Path(os.fsdecode(site.scratch.path)))
        self._directories: list[RelPath] = []

    def by_directory(self) -> Iterator[tuple[Directory, list[_Found]]]:
        """Everything in it, with the item for each path; directories before their content."""
        self._directories = [self._top]
        for path in self._directories:  # grows during the loop
            with self._walker.directory(self._now(path)) as directory:
                names = [(name, join(path, name)) for name in directory.names()]
                found = [(name, below, self._known.get(below)) for name, below in names]
                yield directory, found
            for _, below, known in found:
                if known is not None and known.seen.node.kind is Kind.DIRECTORY:
                    self._directories.append(below)

    def remove_directories(self) -> None:
        """The deepest first; a directory that is not empty has new content."""
        for path in reversed(self._directories):
            parent, name = self._walker.parent_of(self._now(path))
            with parent:
                try:
                    parent.rmdir(name)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    self._site.to_trash(parent, name, path, Kept(TrashReason.ADDED))

    def _now(self, path: RelPath) -> RelPath:
        return RelPath(self._at + path[len(self._top) :])
