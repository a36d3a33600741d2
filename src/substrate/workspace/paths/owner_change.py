"""Giving a file to a user, when that user or another one may be at work in the same directory.

The file is held by a descriptor: its owner is looked at and changed on one inode, whatever gets its
name in between. The kernel takes set-id bits away with each change of owner. They come back only
where the content cannot be another user's: ``chmod u+s`` by the old owner, then a change of owner
that keeps the bit, would be a program of the old owner's that runs as the new one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.system.files import read_bytes_or_none
from substrate.workspace.paths.nofollow_path import Directory

#: (user, group)
Owner = tuple[int, int]

_SET_ID = stat.S_ISUID | stat.S_ISGID
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PROTECTED = Path("/proc/sys/fs/protected_hardlinks")


class OwnerChange(NamedTuple):
    """What `change_owner` did."""

    before: Owner
    #: Set-id bits that the file had, and has no more.
    took_set_id: bool


def change_owner(
    directory: Directory, name: bytes, wish: Callable[[os.stat_result], Owner | None]
) -> OwnerChange | None:
    """Give the file, directory or link to the owner that `wish` names for what is there now; None
    from it, and nothing changes. (Linux; root.)"""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.fd)
    try:
        at = os.fstat(fd)
        owner = wish(at)
        if owner is None:
            return None
        # The kernel has no fchown for O_PATH; this is its documented detour. A link is not
        # followed: the descriptor is of the link itself.
        held = f"/proc/self/fd/{fd}"
        os.chown(held, *owner)
        has_set_id = stat.S_ISREG(at.st_mode) and bool(at.st_mode & _SET_ID)
        keeps = has_set_id and at.st_uid == os.geteuid() and not at.st_mode & _OTHERS_WRITE
        if keeps:
            os.chmod(held, stat.S_IMODE(at.st_mode))
        return OwnerChange((at.st_uid, at.st_gid), has_set_id and not keeps)
    finally:
        os.close(fd)


def may_be_planted(directory: Directory, at: os.stat_result) -> bool:
    """Whether a file may be another path's file: a further name of it, which the directory's owner
    made. Most systems let users link only to what they may write to (`protected_hardlinks`)."""
    if not stat.S_ISREG(at.st_mode) or at.st_nlink == 1:
        return False
    above = directory.own_stat()
    is_others = above.st_uid != os.geteuid() or bool(above.st_mode & stat.S_IWOTH)
    return is_others and read_bytes_or_none(_PROTECTED) != b"1\n"
