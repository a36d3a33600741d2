"""Times and owners: the last things that arrive, when nothing more will change a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from substrate.history.arrival.arrival_plan import Touch
from substrate.model import split
from substrate.workspace.paths import CHANGE, Directory, Walker, change_owner


def give_touches(root: Path | Directory, touches: Iterable[Touch], start_ns: int) -> None:
    """Set times and owners, the deepest path first. Paths that cannot be changed are skipped.

    If the command only touched a file and another process has written to it since the command
    started, the file keeps the time of that write.
    """
    walker, above, parent = Walker(root), None, None
    try:
        for touch in sorted(touches, key=lambda one: one.path, reverse=True):
            here, name = split(touch.path)
            try:
                if here != above:
                    # Open each parent directory only once. If it is moved away during the loop,
                    # its files get their times at the new place.
                    if parent is not None:
                        parent.close()
                    parent, above = None, here
                    parent = walker.directory(here, CHANGE)
                if parent is not None:
                    _touch(parent, name, touch, start_ns)
            except OSError:
                continue  # gone, or owned by another user: losing its time does no harm
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
        change_owner(parent, name, lambda _: (uid, gid))
    if (at.st_atime_ns, at.st_mtime_ns) != touch.times:
        os.utime(name, ns=touch.times, dir_fd=parent.fd, follow_symlinks=False)
