"""Whether SQLite may map its WAL index: writing to a mapping on a full disk kills the process.

SQLite makes the index (``-shm``) 32 kB long by writing one byte in every 4 kB, and then writes
through a mapping. Where the file system allocates smaller blocks, the rest are holes. On a full
disk, writing into a hole does not return an error but raises SIGBUS, which ends the process.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_STRIDE_BYTES = 4096
_INDEX_BYTES = 32768
_BLOCK_OF_STAT = 512
_FULL = (errno.ENOSPC, errno.EDQUOT)


def leaves_holes(directory: Path) -> bool:
    """Whether a mapping that SQLite makes in `directory` may have holes."""
    if not hasattr(os, "statvfs"):
        return False
    with suppress(OSError):
        return os.statvfs(directory).f_frsize < _STRIDE_BYTES
    return False


def may_map(database: Path) -> bool:
    """Whether the WAL index has all its blocks, or room for them, or cannot have holes."""
    if not leaves_holes(database.parent):
        return True
    index = _index_of(database)
    # The first process to open the index truncates it, which frees the room that it takes again.
    return (index is not None and not _is_holey(index)) or _has_room(database.parent)


def fill_holes(database: Path) -> bool:
    """Allocate all blocks of an index that this process has open; False if there is no room."""
    if not leaves_holes(database.parent):
        return True
    index = _index_of(database)
    if index is None or not _is_holey(index):
        return True
    # Use SQLite's own descriptor: closing another one would release SQLite's locks.
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with suppress(OSError):
            if os.path.samestat(os.stat(int(name)), index):
                return _allocate(int(name))
    return True


def _index_of(database: Path) -> os.stat_result | None:
    try:
        return os.stat(f"{database}-shm")
    except FileNotFoundError:
        return None


def _is_holey(index: os.stat_result) -> bool:
    return index.st_blocks * _BLOCK_OF_STAT < _INDEX_BYTES


def _has_room(directory: Path) -> bool:
    """Test by allocating the room in an unnamed file: quotas and reserves count too."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno not in _FULL
    try:
        return _allocate(fd)
    finally:
        os.close(fd)


def _allocate(fd: int) -> bool:
    try:
        os.posix_fallocate(fd, 0, _INDEX_BYTES)
    except OSError as error:
        return error.errno not in _FULL
    return True
