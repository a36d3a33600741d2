"""Phase two, one path at a time: the ways to change it, each with its undo.

Nothing is overwritten. A new entry comes in by an exchange or onto a free name, so the previous
entry always ends up in scratch, where it is verified again in full:

    tree: notes.txt = old          tree: notes.txt = new          found as expected: go on
    scratch:      7 = new   swap   scratch:      7 = what was ──► not so: swap back, a conflict

This also detects an editor that saves at the very moment of the swap.
"""

from __future__ import annotations

import errno
import os
import stat

from substrate.model import Kind
from substrate.workspace.apply.apply_context import Item, Mismatch, OnItem, Site, Step, matches
from substrate.workspace.apply.apply_metadata import retouch_directory
from substrate.workspace.apply.dispose_displaced import drop
from substrate.workspace.apply.staging import passing_mode
from substrate.workspace.apply.trash import TrashEntry
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import Directory, copy, discard, look, rename_whatever_mode

OLD = b".old"


# ------------------------------------------------------------------------ X -> Y by exchange


def swap(site: Site, item: Item) -> list[Step]:
    """Put the staged entry in the place of another one."""
    parent, name = site.walker.parent_of(item.path)
    with parent:
        site.recheck(item, parent, name)
        _promise_mode(site, item)
        done = _exchange(site, item, parent, name)
        if not done:
            return _replace_in_two(site, item, parent, name)
        if not _verified(Swapped(item), site, site.slot(item)):
            raise _swapped_back(site, item, parent, name)
        _note_links(site, item, *site.slot(item))
        site.touch(item.path)
        return [Swapped(item)]


def _exchange(site: Site, item: Item, parent: Directory, name: bytes) -> bool:
    try:
        slot, slot_name = site.slot(item)
        return slot.exchange(slot_name, parent, name)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise Mismatch(
                look(parent, name, site.most_bytes).node, "went away in the last moment"
            ) from error
        if error.errno != errno.EXDEV or item.local_at is not None:
            raise
    _go_local(site, item)
    slot, slot_name = site.slot(item)
    try:
        return slot.exchange(slot_name, parent, name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False  # a directory of a lower layer: overlayfs does not move those


def _go_local(site: Site, item: Item) -> None:
    """The path is on another mount than scratch: use scratch names on that mount."""
    staged, name = site.slot(item)
    item.local_at = site.local_place(item.path)
    if staged.exists(name):
        place, temporary = site.slot(item, b".part")
        discard(place, temporary)
        copy(staged, name, place, temporary)
        place.rename_new(temporary, *site.slot(item))


def _swapped_back(site: Site, item: Item, parent: Directory, name: bytes) -> Mismatch:
    slot, slot_name = site.slot(item)
    found = look(slot, slot_name, site.most_bytes).node
    slot.exchange(slot_name, parent, name)
    if not _is_ours(site, item, slot, slot_name):
        # Saved again in between: the newest version belongs in the tree, the other in the trash.
        slot.exchange(slot_name, parent, name)
        site.to_trash(slot, slot_name, item.path, Kept(TrashReason.REPLACED_TWICE))
    return Mismatch(found, "changed in the moment of the change; left as it is")


def _verified(step: OnItem, site: Site, slot: tuple[Directory, bytes]) -> bool:
    """Whether the displaced entry is as expected; undoes the step if it cannot even be read."""
    try:
        return _is_as_expected(site, step.item, *slot)
    except BaseException:
        step.undo(site)
        raise


def _is_as_expected(site: Site, item: Item, directory: Directory, name: bytes) -> bool:
    if item.keep:
        return True  # it goes to the trash whole, whatever it is
    seen = item.seen
    if seen.node.kind is Kind.FILE and seen.same_but_moved(directory.lstat(name)):
        return matches(item.op.expect, seen.node)
    node = look(directory, name, site.most_bytes).node
    if item.op.expect.kind is Kind.DIRECTORY and node.kind is Kind.DIRECTORY:
        with directory.child(name) as child:
            return not child.names()
    return matches(item.op.expect, node)


def _note_links(site: Site, item: Item, directory: Directory, name: bytes) -> None:
    at = directory.lstat(name) if directory.exists(name) else None
    if at is not None and stat.S_ISREG(at.st_mode) and at.st_nlink > 1:
        site.broken_links.append(item.path)


def _promise_mode(site: Site, item: Item) -> None:
    """A new directory without owner write permission gets its exact mode at the end."""
    node = item.become
    if node.kind is Kind.DIRECTORY and passing_mode(node.mode) != node.mode:
        site.openings.promise(item.path, passing_mode(node.mode), node.mode)


def _is_ours(site: Site, item: Item, directory: Directory, name: bytes) -> bool:
    """Whether this is what we staged, unchanged since."""
    node = look(directory, name, site.most_bytes).node
    if node.kind is not Kind.DIRECTORY:
        return node == item.become
    if item.is_whole_directory:
        return True  # files that other processes put into it since stay in it
    with directory.child(name) as child:
        return item.become.kind is Kind.DIRECTORY and not child.names()


class Swapped(OnItem):
    def undo(self, site: Site) -> None:
        item = self.item
        parent, name = site.walker.parent_of(item.path)
        with parent:
            slot, slot_name = site.slot(item)
            if not slot.exchange(slot_name, parent, name):
                raise OSError(errno.ENOTSUP, "cannot exchange", item.path)
            if not _is_ours(site, item, slot, slot_name):
                slot.exchange(slot_name, parent, name)  # newer work of another process: it stays
                return
            _give_own_mode(item, parent, name)
            site.touch(item.path)

    def settle(self, site: Site) -> None:
        _drop_slot(site, self.item, b"")


def _drop_slot(site: Site, item: Item, suffix: bytes) -> None:
    slot, name = site.slot(item, suffix)
    _give_own_mode(item, slot, name)
    drop(site, slot, name, item, item.op.expect)


def _give_own_mode(item: Item, directory: Directory, name: bytes) -> None:
    """A directory must be writable to be moved; restore the mode it had before."""
    node = item.seen.node
    if node.kind is Kind.DIRECTORY and directory.exists(name):
        directory.chmod(name, node.mode)


# ------------------------------------------------------------------------ X -> Y without it


def replace_whole(site: Site, item: Item) -> list[Step]:
    """Replace a directory that history leaves out by another directory.

    Not by exchange: after a crash the two could not be distinguished, while a free name shows
    exactly what was done.
    """
    parent, name = site.walker.parent_of(item.path)
    with parent:
        return _replace_in_two(site, item, parent, name)


def _replace_in_two(site: Site, item: Item, parent: Directory, name: bytes) -> list[Step]:
    """Where names cannot be exchanged: move the old one out, verify it, move the new one in."""
    steps: list[Step] = _take_out(site, item, parent, name)
    _note_links(site, item, *site.slot(item, OLD))
    try:
        steps += _put_in(site, item, parent, name)
    except BaseException:
        for step in reversed(steps):
            step.undo(site)
        raise
    return steps


# ------------------------------------------------------------------------ absent -> X


def create(site: Site, item: Item) -> list[Step]:
    """Put the staged entry onto a free name."""
    parent, name = site.walker.parent_of(item.path)
    with parent:
        return _put_in(site, item, parent, name)


def _put_in(site: Site, item: Item, parent: Directory, name: bytes) -> list[Step]:
    _promise_mode(site, item)
    try:
        try:
            slot, slot_name = site.slot(item)
            rename_whatever_mode(slot, slot_name, parent, name)
        except OSError as error:
            if error.errno != errno.EXDEV or item.local_at is not None:
                raise
            _go_local(site, item)
            slot, slot_name = site.slot(item)
            slot.rename_new(slot_name, parent, name)
    except FileExistsError as error:
        raise Mismatch(
            look(parent, name, site.most_bytes).node, "appeared in the last moment"
        ) from error
    site.touch(item.path)
    return [Placed(item)]


class Placed(OnItem):
    def undo(self, site: Site) -> None:
        item = self.item
        parent, name = site.walker.parent_of(item.path)
        with parent:
            if item.is_whole_directory:
                rename_whatever_mode(parent, name, *site.slot(item))
            elif item.become.kind is Kind.DIRECTORY:
                try:
                    parent.rmdir(name)
                    site.openings.forget(item.path)
                except (FileNotFoundError, NotADirectoryError):
                    return
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    return  # another process already uses it: it stays
            else:
                self._take_back(site, parent, name)
            site.touch(item.path)

    def _take_back(self, site: Site, parent: Directory, name: bytes) -> None:
        slot, slot_name = site.slot(self.item)
        try:
            parent.rename_new(name, slot, slot_name)
        except FileNotFoundError:
            return
        if look(slot, slot_name, site.most_bytes).node != self.item.become:
            slot.rename_new(slot_name, parent, name)  # edited since: that work stays


# ------------------------------------------------------------------------ X -> absent


def remove(site: Site, item: Item) -> list[Step]:
    """Take a file, symlink or special file (or an excluded directory) out of the tree."""
    parent, name = site.walker.parent_of(item.path)
    with parent:
        site.recheck(item, parent, name)
        return _take_out(site, item, parent, name)


def _take_out(site: Site, item: Item, parent: Directory, name: bytes) -> list[Step]:
    if item.seen.node.kind is Kind.DIRECTORY and not item.keep:
        return rmdir(site, item, parent, name)
    try:
        if not _moved_aside(site, item, parent, name):
            why = item.keep or Kept(TrashReason.NOT_REMOVABLE)
            entry = site.to_trash(parent, name, item.path, why)
            site.touch(item.path)
            return [Trashed(item, entry)]
    except FileNotFoundError as error:
        raise Mismatch(
            look(parent, name, site.most_bytes).node, "went away in the last moment"
        ) from error
    if not _verified(TakenOut(item), site, site.slot(item, OLD)):
        raise _put_back(site, item, parent, name)
    site.touch(item.path)
    return [TakenOut(item)]


def _moved_aside(site: Site, item: Item, parent: Directory, name: bytes) -> bool:
    """False: not even within its own directory (overlayfs and a directory of a lower layer)."""
    for _ in range(2):
        try:
            rename_whatever_mode(parent, name, *site.slot(item, OLD))
            return True
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        if item.local_at is not None:
            break
        _go_local(site, item)
    return False


class Trashed(OnItem):
    def __init__(self, item: Item, entry: TrashEntry) -> None:
        super().__init__(item)
        self._entry = entry

    def undo(self, site: Site) -> None:
        site.from_trash(self._entry)


def _put_back(site: Site, item: Item, parent: Directory, name: bytes) -> Mismatch:
    slot, slot_name = site.slot(item, OLD)
    found = look(slot, slot_name, site.most_bytes).node
    try:
        slot.rename_new(slot_name, parent, name)
    except FileExistsError:
        site.to_trash(slot, slot_name, item.path, Kept(TrashReason.REPLACED_TWICE))
    return Mismatch(found, "changed in the moment of the change; left as it is")


class TakenOut(OnItem):
    def undo(self, site: Site) -> None:
        parent, name = site.walker.parent_of(self.item.path)
        with parent:
            slot, slot_name = site.slot(self.item, OLD)
            try:
                rename_whatever_mode(slot, slot_name, parent, name)
            except FileExistsError:
                # Another process created a new one since. It stays, and the old one goes to the
                # trash.
                site.to_trash(slot, slot_name, self.item.path, Kept(TrashReason.PATH_TAKEN))
            else:
                _give_own_mode(self.item, parent, name)
            site.touch(self.item.path)

    def settle(self, site: Site) -> None:
        _drop_slot(site, self.item, OLD)


# ------------------------------------------------------------------------ an empty directory


def rmdir(site: Site, item: Item, parent: Directory, name: bytes) -> list[Step]:
    at = parent.lstat(name)
    parent.rmdir(name)
    site.openings.forget(item.path)
    site.touch(item.path)
    return [RemovedDirectory(item, at)]


class RemovedDirectory(OnItem):
    def __init__(self, item: Item, at: os.stat_result) -> None:
        super().__init__(item)
        self._at = at

    def undo(self, site: Site) -> None:
        parent, name = site.walker.parent_of(self.item.path)
        with parent:
            try:
                parent.mkdir(name)
            except FileExistsError:
                return
            if os.name != "nt" and os.geteuid() == 0:
                parent.chown(name, self._at.st_uid, self._at.st_gid)
            retouch_directory(site, self.item, parent, name, self.item.seen.node)
            site.touch(self.item.path)
