"""A world's layer, seen from the tree it shall arrive in: what it holds, and where that lies.

`world.changes` reads the layer, history decides what arrives and how, apply renames it in. They
do not know each other and meet in these values.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Change, Node
from substrate.model.paths import RelPath
from substrate.workspace.dirwalk import Directory, Walker
from substrate.workspace.openings import Openings
from substrate.workspace.probe import Seen

#: Marks of overlayfs in all its namespaces: none of them ever reaches the user's tree.
OVERLAY_MARKS = ("trusted.overlay.", "user.overlay.", "user.fuseoverlayfs.")
#: Rights that a file gives to whoever runs it, as set-id bits do: new ones do not arrive either.
FILE_CAPABILITIES = "security.capability"
_SET_ID = stat.S_ISUID | stat.S_ISGID


class LayerEntry(NamedTuple):
    """One path that a command touched."""

    path: RelPath
    #: What history's base says; for what history leaves out, what stands in the tree (no content).
    old: Node
    #: What the command left; ABSENT if it removed it.
    new: Node
    #: History leaves it out: bulk, huge files, everything in a ``.git``.
    beyond: bool = False
    #: It lies in the layer itself, as opposed to being gone with a directory above, or being
    #: another name of a file that was written to.
    is_there: bool = True
    #: A directory whose whole content lies in the layer: nothing of the tree shows through.
    is_whole: bool = False
    #: Written to where it stood, and not replaced by another file of that name.
    in_place: bool = False
    #: It carries marks of overlayfs, or bits or capabilities that must not arrive.
    is_marked: bool = False
    #: (access, modification) in ns, and (user, group), of what lies in the layer.
    times: tuple[int, int] = (0, 0)
    owner: tuple[int, int] = (-1, -1)


class LeftOut(NamedTuple):
    """Something of the layer that never arrives, and why."""

    path: RelPath
    reason: str


class LayerDiff(NamedTuple):
    """Everything a layer holds, sorted by path, so that parents come before children."""

    entries: tuple[LayerEntry, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Directories of the tree that the command emptied or removed: what it saw there is gone.
    emptied: tuple[RelPath, ...] = ()
    #: Plain files of the tree in whose place such files of the layer come, as they were seen when
    #: the layer was read: what a look in that moment would have seen. Not all of them.
    stood: Mapping[RelPath, Seen] = {}

    def changes(self) -> list[Change]:
        """What history records: exact, and without mere touches.

        A file that history kept and keeps no longer (it grew over the size cap) leaves history.
        """
        out = []
        for one in self.entries:
            new = ABSENT if one.beyond else one.new
            if one.old != new and (one.old.oid or not one.beyond):
                out.append(Change(one.path, one.old, new))
        return out


def arriving_mode(mode: int, stood: int) -> int:
    """A file's mode without the set-id bits that did not stand there before."""
    return mode & ~(_SET_ID & ~stood)


class LayerSource:
    """The upper directory as the place that things are renamed from."""

    def __init__(self, upper: Path, *, copy_only: bool = False) -> None:
        """`copy_only`: something still runs in that world; what lies there stays there."""
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
        """The open directory (it stays ours) and the name where `path` lies, if it has one."""
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
        """On the same file system and free to be taken, so that a rename will do."""
        if self._copy_only:
            return False
        return self._notes.own_stat().st_dev == other.own_stat().st_dev

    def clean(self, path: RelPath, mode: int | None = None) -> None:
        """Take overlayfs' marks off what lies at `path` and give it `mode`; devices go."""
        place = None if self._copy_only else self.place(path)
        if place is None or not place[0].exists(place[1]):
            return
        directory, name = place
        found = directory.lstat(name).st_mode
        if stat.S_ISCHR(found) or stat.S_ISBLK(found) or stat.S_ISSOCK(found):
            directory.unlink(name)
            return
        strip_marks(directory, name)
        if mode is not None and not stat.S_ISLNK(found) and stat.S_IMODE(found) != mode:
            directory.chmod(name, mode)

    def _forget(self) -> None:
        if self._last is not None:
            self._last[1].close()
            self._last = None


def strip_marks(directory: Directory, name: bytes) -> None:
    """Remove overlayfs' extended attributes from one name."""
    assert directory.fd is not None, "there is no overlayfs without descriptors"
    itself = b"/proc/self/fd/%d/%s" % (directory.fd, name)
    for attribute in os.listxattr(itself, follow_symlinks=False):
        if attribute.startswith(OVERLAY_MARKS) or attribute == FILE_CAPABILITIES:
            try:
                os.removexattr(itself, attribute, follow_symlinks=False)
            except OSError as error:
                # EPERM: somebody else's namespace, which an ordinary user cannot even have set.
                if error.errno not in (errno.ENODATA, errno.EPERM):
                    raise
