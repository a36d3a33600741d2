"""Whether a layer says nothing: at most directories that stand in the tree just like that.

A lock file that came and went (`git status` makes one each time) leaves a copy of the directory it
was in, and nothing else. Such a copy hides nothing and adds nothing.
"""

from __future__ import annotations

import os
import stat

from substrate.workspace.layer import OVERLAY_MARKS

_STORE_NAME = b".substrate-git"
_GIT = b".git"
#: More are read name by name, as any change.
_MOST = 64


def copied_directories(upper: bytes, root: bytes) -> list[bytes] | None:
    """The directories in `upper`, by their paths in it, parents first; None if it says more.

    Each looks as the one in `root` does, down to its attributes, and to its time; but the time of
    a ``.git`` and of what is in it tells only of locks.
    """
    found: list[bytes] = []
    pending = [b""]
    while pending:
        above = pending.pop()
        try:
            names = os.listdir(os.path.join(upper, above))
        except PermissionError:
            return None  # shut to us: it is opened to be read
        for name in names:
            if not above and name == _STORE_NAME:
                continue
            path = os.path.join(above, name)
            times_count = _GIT not in path.split(b"/")
            if len(found) >= _MOST or not is_copy(upper, root, path, times_count=times_count):
                return None
            found.append(path)
            pending.append(path)
    return found


def is_copy(upper: bytes, root: bytes, path: bytes, *, times_count: bool) -> bool:
    """Whether `path` is a directory in both, with the same mode, owner, attributes and time."""
    ours, theirs = os.path.join(upper, path), os.path.join(root, path)
    try:
        at, stood = os.lstat(ours), os.lstat(theirs)
        if not stat.S_ISDIR(at.st_mode) or _standing(at) != _standing(stood):
            return False
        if times_count and at.st_mtime_ns != stood.st_mtime_ns:
            return False
        return attributes(ours, strict=True) == attributes(theirs)
    except OSError:
        return False  # gone, or shut to us: somebody should look


def attributes(path: bytes, *, strict: bool = False) -> dict[str, bytes] | None:
    """All but the marks of overlayfs; None if it is `strict` and a mark cuts the tree off."""
    names = os.listxattr(path, follow_symlinks=False)
    marks = [name for name in names if name.startswith(OVERLAY_MARKS)]
    if strict and any(name.endswith(".opaque") for name in marks):
        return None
    return {
        name: os.getxattr(path, name, follow_symlinks=False)
        for name in names
        if name not in marks
    }  # fmt: skip


def _standing(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, found.st_uid, found.st_gid
