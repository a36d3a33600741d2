"""Whether files have changed since a moment, judged by their change times (ctime)."""

from __future__ import annotations

import os
from pathlib import Path

from substrate.system import clock

_MOST_LOOKS, _BETWEEN_LOOKS_S = 40, 0.001

#: A file's inode, size, modification time, change time.
Stamp = tuple[int, int, int, int]


def stamp(at: os.stat_result) -> Stamp:
    """An equal stamp means that the file was not written or replaced since."""
    return at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns


def stamp_of(path: Path) -> Stamp | None:
    """None: nothing is there. Symlinks are not followed."""
    try:
        return stamp(os.lstat(path))
    except OSError:
        return None


def new_moment(directory: Path) -> int | None:
    """A change time later than all so far, and not later than that of any future change.

    It is measured with a file made in `directory`, whose file system may have a clock with ticks of
    some milliseconds. None: its clock moves too slowly to wait for it.
    """
    probe = directory / f".tmp-{os.getpid()}"
    fd = os.open(probe, os.O_CREAT | os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        first_ns = os.fstat(fd).st_ctime_ns
        for _ in range(_MOST_LOOKS):
            os.fchmod(fd, 0o600)
            now_ns = os.fstat(fd).st_ctime_ns
            if now_ns > first_ns:
                return now_ns
            clock.sleep(_BETWEEN_LOOKS_S)
        return None
    finally:
        os.close(fd)
        os.unlink(probe)


def changed_since(path: Path, since_ns: int) -> bool:
    """Whether the entry at `path` was written or replaced since; False if it is missing."""
    try:
        return os.lstat(path).st_ctime_ns >= since_ns
    except OSError:
        return False


def holds_newer(path: Path, since_ns: int) -> bool:
    """The same for a file, or for any file below a directory. Symlinks are not followed."""
    if path.is_symlink() or not path.is_dir():
        return changed_since(path, since_ns)
    for where, _, names in os.walk(path):
        if any(changed_since(Path(where, name), since_ns) for name in names):
            return True
    return False
