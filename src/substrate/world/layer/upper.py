"""The upper directory of an overlay, name by name, in the words of the world's view.

    what lies there              what the world shows
    character device 0:0         nothing: the name was removed
    directory, marked opaque     this directory alone; nothing of the tree shows through
    directory                    this one merged with the tree's
    anything else                itself; `origin` tells what it was copied up from

Only the marks of the mount's own namespace count: a command can forge the other one's.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from substrate.model.nodes import Kind
from substrate.model.paths import RelPath, join
from substrate.system.xattrs import Xattrs
from substrate.workspace.dirwalk import ALL, Directory, Walker
from substrate.workspace.layer import FILE_CAPABILITIES, OVERLAY_MARKS
from substrate.workspace.openings import Openings
from substrate.workspace.probe import kind_of
from substrate.world import fuse_marks
from substrate.world.protocol import Layer

_CHUNK_BYTES = 1 << 20
_NO_MARKS = frozenset({errno.ENOTSUP, errno.EPERM, errno.EINVAL})


class Found(NamedTuple):
    """One name in the upper directory."""

    path: RelPath
    name: bytes
    #: ABSENT for a whiteout.
    kind: Kind
    at: os.stat_result
    #: As the world shows it, though we may have opened a shut directory for ourselves.
    mode: int
    is_opaque: bool
    #: The handle of the file it was copied up from; empty if it is new.
    origin: bytes
    #: The user's own ``user.*`` attributes.
    xattrs: Xattrs
    #: It carries any mark of overlayfs at all, or what is told next.
    is_marked: bool
    has_capabilities: bool = False


class Upper:
    """Reads the upper of `layer`. Use as a context manager."""

    def __init__(self, layer: Layer) -> None:
        self._prefix = os.fsdecode(layer.xattr_prefix)
        #: Its marks are files, too.
        self.is_by_fuse = layer.xattr_prefix == fuse_marks.PREFIX
        # Shut directories are opened for us; what their mode was is noted beside the upper.
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
        """Each name in the open directory, sorted, and whether it is a regular file's."""
        assert directory.fd is not None, "there is no overlayfs without descriptors"
        coding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
        with os.scandir(directory.fd) as entries:
            found = [
                (e.name.encode(coding, errors), e.is_file(follow_symlinks=False)) for e in entries
            ]
        found.sort()
        return found

    def names(self, directory: Directory, path: RelPath, listed: Iterable[bytes]) -> list[Found]:
        """What these names in the open directory that is `path` mean.

        What the command left running may have removed some since they were listed: without those.
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
        xattrs, is_marked = [], False
        for attribute in names:
            if attribute.startswith(OVERLAY_MARKS):
                is_marked = True
            elif attribute.startswith("user."):
                value = os.getxattr(itself, attribute, follow_symlinks=False)
                xattrs.append((os.fsencode(attribute), value))
        is_opaque = kind is Kind.DIRECTORY and self._is_opaque(itself, names)
        origin = b"" if kind is Kind.DIRECTORY else self._mark(itself, names, "origin")
        return Found(
            path, name, kind, at, mode, is_opaque, origin, tuple(sorted(xattrs)),
            is_marked or FILE_CAPABILITIES in names, FILE_CAPABILITIES in names,
        )  # fmt: skip

    def _is_opaque(self, itself: bytes, names: list[str]) -> bool:
        if self.is_by_fuse and fuse_marks.ROOTS_OPAQUE in names:
            return True
        return self._mark(itself, names, "opaque") == b"y"

    def _mark(self, itself: bytes, names: list[str], mark: str) -> bytes:
        attribute = self._prefix + mark
        if attribute not in names:
            return b""
        return os.getxattr(itself, attribute, follow_symlinks=False)


def _attribute_names(itself: bytes) -> list[str]:
    try:
        return os.listxattr(itself, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_MARKS:
            return []
        raise


def has_capabilities(directory: Directory | None, name: bytes) -> bool:
    """Whether a file gives rights to whoever runs it; False where nothing can be seen."""
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
