"""What every reader of a git index file shares: the header, paths of version 4, the extensions.

The readers themselves differ in what they need of a hundred thousand entries, and how fast.

    file    header  entries…  extensions…  checksum
    entry   ctime 8  mtime 8  dev 4  ino 4  mode 4  uid 4  gid 4  size 4  id  flags 2  path NUL…
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

#: ``DIRC``, the version, the number of entries.
HEADER = struct.Struct(">4sII")
VERSIONS = (2, 3, 4)
#: The version in which a path names only how it differs from the one before.
PREFIXED_VERSION = 4
SHA1_BYTES = 20
_EXTENSION = struct.Struct(">4sI")


class Extension(NamedTuple):
    name: bytes
    #: Its content, in the file.
    start: int
    end: int


def extensions(data: bytes, at: int, id_bytes: int = SHA1_BYTES) -> Iterator[Extension]:
    """The extensions from `at` on; `ValueError` if they do not end exactly at the checksum."""
    end = len(data) - id_bytes
    while at + _EXTENSION.size <= end:
        name, size = _EXTENSION.unpack_from(data, at)
        start = at + _EXTENSION.size
        at = start + size
        yield Extension(name, start, at)
    if at != end:
        raise ValueError("the extensions do not end where they should")


def prefixed_path(data: bytes, at: int, previous: bytes) -> tuple[bytes, int]:
    """Version 4: how many bytes to drop from the previous path, and what replaces them.

    Returns the path, and where the next entry begins.
    """
    byte = data[at]
    at += 1
    drop = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        drop = ((drop + 1) << 7) | (byte & 0x7F)
    end = data.index(b"\0", at)
    if drop > len(previous):
        raise ValueError("a path drops more than there is")
    return previous[: len(previous) - drop] + data[at:end], end + 1
