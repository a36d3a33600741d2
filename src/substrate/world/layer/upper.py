"""The upper directory of an overlay, name by name, as the world shows it.

    in the upper                 what the world shows
    character device 0:0         nothing: the name was removed
    directory, marked opaque     this directory alone; nothing of the tree is visible
    directory                    this one merged with the tree's
    anything else                itself; `origin` says what it was copied up from

Only the marks of the mount's own namespace count: a command can forge those of the other one.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from substrate.model import Kind, RelPath, join
from substrate.system.files import RECORDED, Xattrs
from substrate.workspace.apply import FILE_CAPABILITIES, OVERLAY_MARKS
from substrate.workspace.paths import (
    ALL,
    READ,
    Directory,
    Openings,
    Walker,
    kind_of,
    with_owner_bits,
)
from substrate.world.interface import Layer
from substrate.world.strategies import fuse_marks

_CHUNK_BYTES = 1 << 20
_NO_MARKS = frozenset({errno.ENOTSUP, errno.EPERM, errno.EINVAL})


class Found(NamedTuple):
    """One name in the upper directory."""

    path: RelPath
    name: bytes
    #: ABSENT for a whiteout.
    kind: Kind
    at: os.stat_result
    #: As the world shows it, even if we have opened an unreadable directory for ourselves.
    mode: int
    is_opaque: bool
    #: The handle of the file it was copied up from; empty if it is new.
    origin: bytes
    #: The attributes that history keeps.
    xattrs: Xattrs
    #: It has any mark of overlayfs, or file capabilities.
    is_marked: bool
    has_capabilities: bool = False


class Upper:
    """Reads the upper of `layer`. Use as a context manager."""

    def __init__(self, layer: Layer) -> None:
        self._prefix = os.fsdecode(layer.xattr_prefix)
        #: Whether fuse-overlayfs made it: its marks can also be files.
        self.is_by_fuse = layer.xattr_prefix == fuse_marks.PREFIX
        # Unreadable directories are opened for us; their modes are noted beside the upper.
        self._notes = Directory.open_root(layer.directory)
        self._openings = Openings(self._notes)
        self._walker = Walker(layer.upper, self._openings.open)

    def __enter__(self) -> Upper:
        return self

    def __exit__(self, *_: object) -> None:
        self._notes.close()

    def open(self, path: RelPath) -> Directory:
        return self._walker.directory(path, ALL)

    def listed(self, directory: Directory) -> list[tuple[bytes, bool]]:
        """Each name in the open directory, sorted, and whether it is a regular file."""
        assert directory.fd is not None, "there is no overlayfs without descriptors"
        coding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
        with os.scandir(directory.fd) as entries:
            found = [
                (e.name.encode(coding, errors), e.is_file(follow_symlinks=False)) for e in entries
            ]
        found.sort()
        return found

    def names(self, directory: Directory, path: RelPath, listed: Iterable[bytes]) -> list[Found]:
        """What these names in the open directory `path` mean.

        Names that a process left running has removed since they were listed are skipped.
        """
        found = []
        for name in listed:
            with suppress(FileNotFoundError):
                found.append(self._found(directory, join(path, name), name))
        if self.is_by_fuse:
            return [one for one in found if not fuse_marks.is_mark(one.name, one.at)]
        return found

    def _found(self, directory: Directory, path: RelPath, name: bytes) -> Found:
        at = directory.lstat(name)
        if stat.S_ISCHR(at.st_mode) and at.st_rdev == 0:
            return Found(path, name, Kind.ABSENT, at, 0, False, b"", (), False)
        kind = kind_of(at)
        mode = stat.S_IMODE(at.st_mode)
        if kind is Kind.DIRECTORY:
            mode = self._openings.final_mode(path, mode)
        assert directory.fd is not None, "there is no overlayfs without descriptors"
        itself = b"/proc/self/fd/%d/%s" % (directory.fd, name)
        names = _attribute_names(itself)
        if not names:
            return Found(path, name, kind, at, mode, False, b"", (), False)
        mark = self._prefix + ("opaque" if kind is Kind.DIRECTORY else "origin")
        wanted = [one for one in names if one == mark or _is_recorded(one)]
        try:
            values = {one: os.getxattr(itself, one, follow_symlinks=False) for one in wanted}
        except PermissionError:
            with with_owner_bits(directory, name, READ) as its_inode:
                values = {one: os.getxattr(its_inode, one) for one in wanted}
        xattrs = [(os.fsencode(one), values[one]) for one in wanted if _is_recorded(one)]
        is_opaque, origin = False, b""
        if kind is Kind.DIRECTORY:
            fuses = self.is_by_fuse and fuse_marks.ROOTS_OPAQUE in names
            is_opaque = fuses or values.get(mark) == b"y"
        else:
            origin = values.get(mark, b"")
        has_rights = FILE_CAPABILITIES in names
        is_marked = has_rights or any(one.startswith(OVERLAY_MARKS) for one in names)
        return Found(
            path, name, kind, at, mode, is_opaque, origin, tuple(sorted(xattrs)), is_marked,
            has_rights,
        )  # fmt: skip


def _is_recorded(attribute: str) -> bool:
    return attribute.startswith(RECORDED) and not attribute.startswith(OVERLAY_MARKS)


def _attribute_names(itself: bytes) -> list[str]:
    try:
        return os.listxattr(itself, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_MARKS:
            return []
        raise


def has_capabilities(directory: Directory | None, name: bytes) -> bool:
    """Whether a file has capabilities for the process that runs it; False where unknown."""
    if directory is None or directory.fd is None:
        return False
    try:
        return FILE_CAPABILITIES in _attribute_names(b"/proc/self/fd/%d/%s" % (directory.fd, name))
    except OSError:
        return False


def read_all(fd: int, size: int) -> bytes:
    """All of the file; one system call for most."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    while data:
        data = os.read(fd, _CHUNK_BYTES)
        parts.append(data)
    return b"".join(parts)
