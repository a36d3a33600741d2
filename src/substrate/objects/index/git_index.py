"""Reading a git index file (versions 2 to 4) without git: which blob was at which stat.

Only plain entries are given back; whatever is unusual (a conflict, intent to add, a sparse
directory, a split index, SHA-256) is left out, because the caller can always read the file itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

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
    """Not an index we can vouch for."""


def parse_index(data: bytes) -> list[IndexEntry]:
    """The plain entries of an index file's bytes; `UnusualIndexError` if it is none we know."""
    if len(data) < 32 or data[:4] != b"DIRC":
        raise UnusualIndexError("no index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4):
        raise UnusualIndexError(f"index version {version}")
    # Wrong ids must not slip in: an index without its checksum (index.skipHash) is not believed.
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
    # A hundred thousand times round: names bound once, and tuples made without Python code.
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
        if version == 4:
            path, at = _prefixed_path(data, start, path)
        else:
            end = find(b"\0", start)
            path = data[start:end]
            at += (end - at + 8) & ~7  # padded with one to eight NULs
        if plain:
            mtime_ns, ctime_ns = m_s * 1_000_000_000 + m_ns, c_s * 1_000_000_000 + c_ns
            add(new((path, oid, mode, size, mtime_ns, ctime_ns, ino)))
    return entries, at


def _prefixed_path(data: bytes, at: int, previous: bytes) -> tuple[bytes, int]:
    """Version 4: how many bytes to drop from the previous path, and what comes instead."""
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


def check_extensions(data: bytes, at: int) -> None:
    """Raise `ValueError` (`struct.error`) unless what follows the entries may be passed over."""
    for signature in _extensions(data, at):
        # A lower-case first letter means: do not read on if you do not know me. `link` is a split
        # index; `sdir` a sparse one, whose directory entries are not plain and were left out.
        if signature[:1].islower() and signature != b"sdir":
            raise ValueError(f"unknown extension {signature!r}")


def _extensions(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data) - 20:
        signature = data[at : at + 4]
        (size,) = struct.unpack_from(">I", data, at + 4)
        at += 8 + size
        yield signature
    if at != len(data) - 20:
        raise ValueError("the extensions do not end where they should")
