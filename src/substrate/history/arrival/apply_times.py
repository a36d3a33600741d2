"""Times and owners: the last things that arrive, when nothing more will change a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from substrate.history.arrival_plan import Touch
from substrate.model.paths import split
from substrate.workspace.dirwalk import CHANGE, Directory, Walker

_SET_ID = stat.S_ISUID | stat.S_ISGID


def give_touches(root: Path, touches: Iterable[Touch], start_ns: int) -> None:
    """Set them, the deepest first; what cannot be touched any more is left alone.

    A file that the command only touched and somebody else wrote to since its start keeps the
    time of that writing.
    """
    walker, above, parent = Walker(root), None, None
    try:
        for touch in sorted(touches, key=lambda one: one.path, reverse=True):
            here, name = split(touch.path)
            try:
                if here != above:
                    # Not looked for again for each file in it: one that is moved away meanwhile
                    # has got its times there.
                    if parent is not None:
                        parent.close()
                    parent, above = None, here
                    parent = walker.directory(here, CHANGE)
                if parent is not None:
                    _touch(parent, name, touch, start_ns)
            except OSError:
                continue  # gone, or somebody else's: its time is no loss
    finally:
        if parent is not None:
            parent.close()


def _touch(parent: Directory, name: bytes, touch: Touch, start_ns: int) -> None:
    at = parent.lstat(name)
    if touch.only and at.st_mtime_ns >= start_ns:
        return
    uid, gid = touch.owner
    is_root = os.geteuid() == 0
    if is_root and uid >= 0 and (at.st_uid, at.st_gid) != (uid, gid):
        parent.chown(name, uid, gid)
        if at.st_mode & _SET_ID and not stat.S_ISLNK(at.st_mode):
            parent.chmod(name, stat.S_IMODE(at.st_mode))  # chown took them away
    if (at.st_atime_ns, at.st_mtime_ns) != touch.times:
        os.utime(name, ns=touch.times, dir_fd=parent.fd, follow_symlinks=False)
