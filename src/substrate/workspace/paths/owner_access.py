"""Access to the caller's own files that their mode forbids: reading 0000, marks on 0444.

An owner needs no permission to change a mode, a time or an owner. To read a content or an extended
attribute the mode must allow reading, and to change an attribute it must allow writing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from substrate.workspace.paths.nofollow_path import Directory

READ, WRITE = 0o400, 0o200


@contextmanager
def with_owner_bits(directory: Directory, name: bytes, bits: int) -> Iterator[bytes]:
    """Give a file or directory of the caller's those bits for the moment; yields a path to it.

    The path leads to that very inode, even if another entry takes its name. `PermissionError` for
    another user's file, for a symlink, and where the system cannot do this.
    """
    if not hasattr(os, "O_PATH") or directory.fd is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory.fd)
    try:
        at = os.fstat(fd)
        if stat.S_ISLNK(at.st_mode) or at.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        mode = stat.S_IMODE(at.st_mode)
        itself = b"/proc/self/fd/%d" % fd
        os.chmod(itself, mode | bits)
        try:
            yield itself
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(fd)


def is_shut(directory: Directory, name: bytes, at: os.stat_result) -> bool:
    """Whether a file is another user's and the caller may not read it.

    Its directory's owner may still remove or rename it: that needs no permission for the file.
    """
    if not stat.S_ISREG(at.st_mode) or not hasattr(os, "geteuid"):
        return False
    if at.st_uid == os.geteuid() or os.geteuid() == 0 or directory.fd is None:
        return False
    return not os.access(name, os.R_OK, dir_fd=directory.fd, effective_ids=True)
