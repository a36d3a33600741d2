"""Whether somebody worked in a place since a moment, told by the files' times of change."""

from __future__ import annotations

import os
from pathlib import Path


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
