"""Whether a layer changes nothing: it holds only directories that are the same in the tree.

A lock file that came and went (`git status` makes one each time) leaves a copy of its directory in
the layer, and nothing else. Such a copy hides nothing and adds nothing.
"""

from __future__ import annotations

import os
import stat

from substrate.workspace.apply.layer_source import OVERLAY_MARKS

_STORE_NAME = b".substrate-git"
_GIT = b".git"
#: A layer with more directories is read name by name, as any change.
_MOST = 64


def copied_directories(upper: bytes, root: bytes) -> list[bytes] | None:
    """The directories in `upper`, by their paths in it, parents first; None if it holds more.

    Each is the same as in `root`, including attributes and modification time. The time of a
    ``.git`` and of what is in it does not count: only lock files change it.
    """
    found: list[bytes] = []
    pending = [b""]
    while pending:
        above = pending.pop()
        try:
            names = os.listdir(os.path.join(upper, above))
        except PermissionError:
            return None  # not readable for us: the full comparison opens it
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
        return False  # gone, or not readable for us: compare in full


def attributes(path: bytes, *, strict: bool = False) -> dict[str, bytes] | None:
    """All attributes but overlayfs' marks; None if `strict` and marked as opaque."""
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
