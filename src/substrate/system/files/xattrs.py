"""Extended attributes in the ``user.`` namespace: the only ones that are the user's own data."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

Xattrs = tuple[tuple[bytes, bytes], ...]

_PREFIX = "user."
_HAS_THEM = hasattr(os, "listxattr")
#: The file system has none, or none on this kind of file (links, FIFOs): read as "no attributes".
_UNSUPPORTED = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL})
_GONE = frozenset({getattr(errno, "ENODATA", errno.ENOENT)})


def read_user_xattrs(fd_or_path: int | bytes | str | Path, follow: bool = False) -> Xattrs:
    """All ``user.*`` attributes as (name, value), sorted by name; empty where unsupported.

    Links are not followed unless asked. A file whose attributes may not be read (EACCES) is an
    `OSError`: to call that "none" would lose them in the next restore.
    """
    if not _HAS_THEM:
        return ()
    try:
        if isinstance(fd_or_path, int):
            names = os.listxattr(fd_or_path)
        else:
            names = os.listxattr(fd_or_path, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return ()
        raise
    if not names:  # as nearly always
        return ()
    found = []
    for name in names:
        if not name.startswith(_PREFIX):
            continue
        try:
            value = os.getxattr(fd_or_path, name, **_following(fd_or_path, follow))
        except OSError as error:
            if error.errno in _GONE:
                continue  # removed between the two calls
            raise
        found.append((os.fsencode(name), value))
    return tuple(sorted(found))


def write_user_xattrs(target: int | bytes | str | Path, wanted: Xattrs, current: Xattrs) -> None:
    """Change the ``user.*`` attributes from `current` to `wanted`; nothing else is touched.

    Links are not followed. Raises `OSError` (ENOTSUP) when something is wanted that the file
    system cannot hold.
    """
    if wanted == current:
        return
    if not hasattr(os, "setxattr"):
        raise OSError(errno.ENOTSUP, "no extended attributes on this system")
    keep = dict(wanted)
    have = dict(current)
    for name in have:
        if name not in keep:
            with contextlib.suppress(FileNotFoundError):
                _remove(target, name)
    for name, value in keep.items():
        if have.get(name) != value:
            os.setxattr(target, name, value, **_following(target, False))


def _remove(fd_or_path: int | bytes | str | Path, name: bytes) -> None:
    try:
        os.removexattr(fd_or_path, name, **_following(fd_or_path, False))
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _following(fd_or_path: int | bytes | str | Path, follow: bool) -> dict[str, bool]:
    # A descriptor takes no follow_symlinks: Python raises ValueError for False.
    return {} if isinstance(fd_or_path, int) else {"follow_symlinks": follow}
