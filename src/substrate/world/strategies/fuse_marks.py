"""Tells fuse-overlayfs' own marks in an upper directory from the command's files.

    in the upper                         what it is
    character device 0:0                 a whiteout, as overlayfs' own
    directory with the opaque attribute  opaque; every new directory is marked so
    ``.wh..wh..opq``, empty, mode 0700   the same mark as a file, for systems without attributes
    ``.wh..opq``, character device 0:0   added beside it by a bug of version 1.10

It writes ``.wh.NAME`` for a whiteout only where it cannot make a device; there no such world is
made (`layer_dirs.create` makes the first one). So a file of that name is always the user's own.
The attributes cannot be forged: it refuses to set them in the mount.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from substrate.model import ROOT, Kind

if TYPE_CHECKING:
    from substrate.world.interface import Layer

PREFIX = b"user.fuseoverlayfs."
#: As root it marks an opaque directory with the kernel's own attribute.
ROOTS_OPAQUE = "trusted.overlay.opaque"
_SAID_AGAIN = b".wh..wh..opq"
_SLIP = b".wh..opq"


def is_mark(name: bytes, at: os.stat_result) -> bool:
    """Whether a name is fuse-overlayfs' own mark, and not a user's file."""
    if name == _SAID_AGAIN:
        is_empty = stat.S_ISREG(at.st_mode) and at.st_size == 0
        return is_empty and stat.S_IMODE(at.st_mode) == 0o700
    return name == _SLIP and stat.S_ISCHR(at.st_mode) and at.st_rdev == 0


def is_copy(origin: bytes, path: bytes) -> bool:
    """Whether the file at `path` was copied up from there: the origin is the path itself."""
    return origin == path + b"\0"


def tidy(layer: Layer) -> None:
    """Remove the marks that are files, so that whole directories can be renamed out.

    Only once nothing runs in the world any more. Directories keep their times. Doing it again is a
    no-op.
    """
    from substrate.world.layer import Upper

    if layer.xattr_prefix != PREFIX:
        return
    pending = [ROOT]
    with Upper(layer) as upper:
        while pending:
            path = pending.pop()
            with upper.open(path) as directory:
                at = directory.own_stat()
                found = upper.names(directory, path, directory.names())
                pending += [one.path for one in found if one.kind is Kind.DIRECTORY]
                for name in (_SAID_AGAIN, _SLIP):
                    with suppress(FileNotFoundError):
                        if is_mark(name, directory.lstat(name)):
                            directory.unlink(name)
                assert directory.fd is not None, "there is no overlay without descriptors"
                os.utime(directory.fd, ns=(at.st_atime_ns, at.st_mtime_ns))
