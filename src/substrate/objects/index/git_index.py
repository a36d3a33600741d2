"""Read a git index file (versions 2 to 4) without git: the blob and the stat of each file.

Only plain entries are returned; unusual ones (a conflict, intent to add, a sparse directory, a
split index, SHA-256) are left out, because the caller can always read the file itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from substrate.objects.index.index_format import (
    PREFIXED_VERSION,
    VERSIONS,
    extensions,
    prefixed_path,
)

_FIXED = struct.Struct(">IIIIIIIIII20sH")
_STAGE, _EXTENDED, _ASSUME_VALID = 0x3000, 0x4000, 0x8000
_SKIP_WORKTREE, _INTENT_TO_ADD = 0x4000, 0x2000
_PLAIN_MODES = (0o100644, 0o100755, 0o120000)


class IndexEntry(NamedTuple):
    path: bytes
    oid: bytes
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int


class UnusualIndexError(ValueError):
    """Not an index that we can rely on."""


def parse_index(data: bytes) -> list[IndexEntry]:
    """The plain entries of an index file's bytes; `UnusualIndexError` for an unknown format."""
    if len(data) < 32 or data[:4] != b"DIRC":
        raise UnusualIndexError("no index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in VERSIONS:
        raise UnusualIndexError(f"index version {version}")
    # Ids must be right: an index without a checksum (index.skipHash) is rejected.
    if hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
        raise UnusualIndexError("the index's checksum is missing or wrong")
    try:
        entries, end = _entries(data, version, count)
        check_extensions(data, end)
    except (struct.error, IndexError, ValueError) as error:
        raise UnusualIndexError(str(error)) from error
    return entries


def _entries(data: bytes, version: int, count: int) -> tuple[list[IndexEntry], int]:
    at, path = 12, b""
    entries: list[IndexEntry] = []
    # This loop runs a hundred thousand times: bind names once, make tuples without Python code.
    unpack, find, add = _FIXED.unpack_from, data.find, entries.append
    new: Callable[[tuple[bytes, bytes, int, int, int, int, int]], IndexEntry]
    new = partial(tuple.__new__, IndexEntry)
    unusual, plain_modes = _STAGE | _ASSUME_VALID | _EXTENDED, _PLAIN_MODES
    for _ in range(count):
        c_s, c_ns, m_s, m_ns, _, ino, mode, _, _, size, oid, flags = unpack(data, at)
        start = at + 62
        plain = mode in plain_modes
        if flags & unusual:
            plain = plain and not flags & (_STAGE | _ASSUME_VALID)
            if flags & _EXTENDED:
                more = int.from_bytes(data[start : start + 2], "big")
                plain = plain and not more & (_SKIP_WORKTREE | _INTENT_TO_ADD)
                start += 2
        if version == PREFIXED_VERSION:
            path, at = prefixed_path(data, start, path)
        else:
            end = find(b"\0", start)
            path = data[start:end]
            at += (end - at + 8) & ~7  # padded with one to eight NULs
        if plain:
            mtime_ns, ctime_ns = m_s * 1_000_000_000 + m_ns, c_s * 1_000_000_000 + c_ns
            add(new((path, oid, mode, size, mtime_ns, ctime_ns, ino)))
    return entries, at


def check_extensions(data: bytes, at: int) -> None:
    """Raise `ValueError` (`struct.error`) unless all extensions can be ignored."""
    for signature, _, _ in extensions(data, at):
        # A lower-case first letter marks an extension that a reader must understand. `link` is a
        # split index; `sdir` a sparse one, whose directory entries are not plain and left out.
        if signature[:1].islower() and signature != b"sdir":
            raise ValueError(f"unknown extension {signature!r}")
