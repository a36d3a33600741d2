"""A world's layer, seen from the tree it will be applied to: its entries, and where they are.

`world.layer` reads the layer, history decides what arrives and how, apply renames it in. They do
not know each other and share these values.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.model import ABSENT, Change, Node, RelPath
from substrate.workspace.paths import WRITE, Directory, Openings, Seen, Walker, with_owner_bits

#: Marks of overlayfs in all its namespaces: none of them ever reaches the user's tree.
OVERLAY_MARKS = ("trusted.overlay.", "user.overlay.", "user.fuseoverlayfs.")
#: Rights that a file gives to any process that runs it, like set-id bits: new ones do not arrive.
FILE_CAPABILITIES = "security.capability"
_SET_ID = stat.S_ISUID | stat.S_ISGID


class LayerEntry(NamedTuple):
    """One path that a command touched."""

    path: RelPath
    #: The state in history's base; for paths that history leaves out, the tree's (without content).
    old: Node
    #: The state after the command; ABSENT if it removed the path.
    new: Node
    #: History leaves it out: excluded directories, huge files, everything in a ``.git``.
    beyond: bool = False
    #: It is in the layer itself: not removed with a directory above, and not another name of a file
    #: that was written to.
    is_there: bool = True
    #: A directory whose whole content is in the layer: nothing of the tree shows through.
    is_whole: bool = False
    #: The file was written to, not replaced by another file with that name.
    in_place: bool = False
    #: It carries marks of overlayfs, or bits or capabilities that must not arrive.
    is_marked: bool = False
    #: (access, modification) in ns, and (user, group), of the entry in the layer.
    times: tuple[int, int] = (0, 0)
    owner: tuple[int, int] = (-1, -1)


class LeftOut(NamedTuple):
    """An entry of the layer that never arrives, and why."""

    path: RelPath
    reason: str


class LayerDiff(NamedTuple):
    """Everything a layer holds, sorted by path, so that parents come before children."""

    entries: tuple[LayerEntry, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Directories of the tree that the command emptied or removed, with all it saw there.
    emptied: tuple[RelPath, ...] = ()
    #: Some of the tree's plain files that files of the layer will replace, as they were when the
    #: layer was read.
    stood: Mapping[RelPath, Seen] = {}

    def changes(self) -> list[Change]:
        """The changes that history records: exact, without mere touches.

        A file that history kept and keeps no longer (it grew over the size cap) leaves history.
        """
        out = []
        for one in self.entries:
            new = ABSENT if one.beyond else one.new
            if one.old != new and (one.old.oid or not one.beyond):
                out.append(Change(one.path, one.old, new))
        return out


def arriving_mode(mode: int, stood: int) -> int:
    """A file's mode without set-id bits that the file did not have before."""
    return mode & ~(_SET_ID & ~stood)


class LayerSource:
    """The upper directory, from which entries are renamed into the tree."""

    def __init__(self, upper: Path, *, copy_only: bool = False) -> None:
        """`copy_only`: a process still runs in that world, so its files stay in the layer."""
        self._copy_only = copy_only
        self._notes = Directory.open_root(upper.parent)
        self._openings = Openings(self._notes)
        self._walker = Walker(upper, self._openings.open)
        self._last: tuple[RelPath, Directory] | None = None

    def __enter__(self) -> LayerSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._notes.close()

    def place(self, path: RelPath) -> tuple[Directory, bytes] | None:
        """The open directory (this object closes it) and the name of `path` in it, if any."""
        above, _, name = path.rpartition(b"/")
        if self._last is None or self._last[0] != above:
            self._forget()
            try:
                self._last = (RelPath(above), self._walker.directory(RelPath(above), 0o700))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return self._last[1], name

    def holds(self, path: RelPath) -> bool:
        place = self.place(path)
        return place is not None and place[0].exists(place[1])

    def is_beside(self, other: Directory) -> bool:
        """On the same file system and free to be taken, so that a rename is enough."""
        if self._copy_only:
            return False
        return self._notes.own_stat().st_dev == other.own_stat().st_dev

    def clean(self, path: RelPath, mode: int | None = None) -> None:
        """Remove overlayfs' marks from the entry at `path` and set `mode`; devices are removed."""
        place = None if self._copy_only else self.place(path)
        if place is None or not place[0].exists(place[1]):
            return
        directory, name = place
        found = directory.lstat(name).st_mode
        if stat.S_ISCHR(found) or stat.S_ISBLK(found) or stat.S_ISSOCK(found):
            directory.unlink(name)
            return
        try:
            strip_marks(directory, name)
            if mode is not None and not stat.S_ISLNK(found) and stat.S_IMODE(found) != mode:
                directory.chmod(name, mode)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error

    def _forget(self) -> None:
        if self._last is not None:
            self._last[1].close()
            self._last = None


def strip_marks(directory: Directory, name: bytes) -> None:
    """Remove overlayfs' extended attributes from one name."""
    assert directory.fd is not None, "there is no overlayfs without descriptors"
    itself = b"/proc/self/fd/%d/%s" % (directory.fd, name)
    marks = [
        attribute
        for attribute in os.listxattr(itself, follow_symlinks=False)
        if attribute.startswith(OVERLAY_MARKS) or attribute == FILE_CAPABILITIES
    ]
    try:
        _remove_attributes(itself, marks)
    except OSError as error:
        if error.errno != errno.EACCES:
            raise
        # Changing an attribute needs write permission in the mode: git's objects are 0444.
        with with_owner_bits(directory, name, WRITE) as its_inode:
            _remove_attributes(its_inode, marks, follow=True)


def _remove_attributes(path: bytes, attributes: list[str], *, follow: bool = False) -> None:
    for attribute in attributes:
        try:
            os.removexattr(path, attribute, follow_symlinks=follow)
        except OSError as error:
            # EPERM: a namespace of root's, where an ordinary user cannot have set anything.
            if error.errno not in (errno.ENODATA, errno.EPERM):
                raise
