"""Whether somebody worked in a place since a moment, told by the files' times of change."""

from __future__ import annotations

import os
from pathlib import Path

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
