"""Whether a directory made in one place and moved to another is as if made there.

A new entry inherits from its directory: default access lists, security labels, a project quota,
flags such as encryption. It keeps these when it is moved, and some of them forbid the move.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

_GET_FLAGS, _GET_PROJECT = 0x80086601, 0x801C581F
_PROJECT = struct.Struct("=5I8x")
#: FS_INDEX_FL, FS_EXTENT_FL, FS_TOPDIR_FL: about the directory's own storage, not its content.
_OF_ITSELF = 0x1000 | 0x80000 | 0x20000
_ENCRYPTED = 0x800
_NO_SUCH_NOTION = (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def is_same_ground(one: bytes, other: bytes) -> bool:
    """Whether an entry made in one directory and moved to the other is as if made in the other."""
    try:
        return _ground(one) == _ground(other)
    except OSError:
        return False


def _ground(directory: bytes) -> tuple[object, ...]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = int.from_bytes(_asked(fd, _GET_FLAGS, 8)[:4], sys.byteorder) & ~_OF_ITSELF
        if flags & _ENCRYPTED:
            raise OSError(errno.EXDEV, "each such directory may have a key of its own")
        _, extent, _, project, cow_extent = _PROJECT.unpack(_asked(fd, _GET_PROJECT, _PROJECT.size))
        given = {name: os.getxattr(fd, name) for name in os.listxattr(fd) if _is_given(name)}
        return os.fstat(fd).st_dev, _mount(fd), flags, extent, project, cow_extent, given
    finally:
        os.close(fd)


def _asked(fd: int, question: int, size: int) -> bytes:
    import fcntl

    try:
        return fcntl.ioctl(fd, question, bytes(size))
    except OSError as error:
        if error.errno in _NO_SUCH_NOTION:
            return bytes(size)
        raise


def _is_given(attribute: str) -> bool:
    """The user's own, an overlay's and the directory's own access list are not inherited."""
    return not attribute.startswith(("user.", "trusted.", "system.posix_acl_access"))


def _mount(fd: int) -> bytes:
    """The kernel renames only within one mount, even where two mounts show the same file system."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as told:
        return next((line for line in told if line.startswith(b"mnt_id:")), b"")
