"""The extended attributes that history keeps: the user's own, POSIX ACLs, file capabilities.

    user.*                            the user's own data
    system.posix_acl_access, _default other users' access; the default for new files in a directory
    security.capability               what a program may do beyond its caller's rights

Other names (labels, marks of overlayfs) belong to the system and are never touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

Xattrs = tuple[tuple[bytes, bytes], ...]

ACL_ACCESS = "system.posix_acl_access"
ACL_DEFAULT = "system.posix_acl_default"
CAPABILITY = "security.capability"
#: Prefixes of the attribute names that history keeps.
RECORDED = ("user.", ACL_ACCESS, ACL_DEFAULT, CAPABILITY)
_HAS_THEM = hasattr(os, "listxattr")
#: No attributes on this file system or this kind of file (symlinks, FIFOs): read as "none".
_UNSUPPORTED = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL})
_GONE = frozenset({getattr(errno, "ENODATA", errno.ENOENT)})


def read_xattrs(fd_or_path: int | bytes | str | Path, follow: bool = False) -> Xattrs:
    """The attributes that history keeps as (name, value), sorted by name; empty where unsupported.

    Symlinks are not followed unless asked. If the attributes may not be read (EACCES), raises
    `OSError`: returning "none" would lose them in the next restore.
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
    if not names:  # nearly always
        return ()
    found = []
    for name in names:
        if not name.startswith(RECORDED):
            continue
        try:
            value = os.getxattr(fd_or_path, name, **_following(fd_or_path, follow))
        except OSError as error:
            if error.errno in _GONE:
                continue  # removed between the two calls
            raise
        found.append((os.fsencode(name), value))
    return tuple(sorted(found))


def write_xattrs(target: int | bytes | str | Path, wanted: Xattrs, current: Xattrs) -> None:
    """Change the attributes that history keeps from `current` to `wanted`; no others are touched.

    Symlinks are not followed. Raises `OSError` if the file system cannot hold an attribute
    (ENOTSUP) or the caller may not set it (EPERM).
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
    # For a descriptor, Python raises ValueError if follow_symlinks is False.
    return {} if isinstance(fd_or_path, int) else {"follow_symlinks": follow}


def write_what_can_be(target: int | bytes | str | Path, wanted: Xattrs, current: Xattrs) -> Xattrs:
    """`write_xattrs`, one by one; returns those it could not set. A failed removal raises."""
    write_xattrs(target, tuple(one for one in current if one in wanted), current)
    refused = []
    for one in wanted:
        if one in current:
            continue
        try:
            write_xattrs(target, (one,), ())
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            refused.append(one)
    return tuple(refused)
