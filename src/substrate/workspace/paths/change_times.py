"""Whether somebody worked in a place since a moment, told by the files' times of change."""

from __future__ import annotations

import os
from pathlib import Path

from substrate.system import clock

_MOST_LOOKS, _BETWEEN_LOOKS_S = 40, 0.001

#: Of a file: inode, size, time of writing, time of change.
Stamp = tuple[int, int, int, int]


def stamp(at: os.stat_result) -> Stamp:
    """The same as before: nobody has written or replaced it since."""
    return at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns


def stamp_of(path: Path) -> Stamp | None:
    """None: nothing is there. Links are not followed."""
    try:
        return stamp(os.lstat(path))
    except OSError:
        return None


def new_moment(directory: Path) -> int | None:
    """A time of change that no file has yet and that none changed from now on will be older than.

    On the file system of `directory`, by a file made there; its clock may move in ticks of some
    milliseconds. None: it moves more slowly than anybody should wait.
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
    """Whether what stands there was written or replaced since; what is gone says nothing."""
    try:
        return os.lstat(path).st_ctime_ns >= since_ns
    except OSError:
        return False


def holds_newer(path: Path, since_ns: int) -> bool:
    """The same of a file, or of any file below a directory. Links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return changed_since(path, since_ns)
    for where, _, names in os.walk(path):
        if any(changed_since(Path(where, name), since_ns) for name in names):
            return True
    return False
