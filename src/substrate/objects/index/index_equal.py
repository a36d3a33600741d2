"""Whether two git index files say the same of every file, their stat data apart.

A plain ``git status`` rewrites the index with fresh stat data: no work of anybody's, and in a
world it may describe files of the world.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

HEADER = struct.Struct(">4sII")
#: ctime, mtime, dev, ino; then the mode; then uid, gid, size; then the id and the flags.
_MTIME_S, _MODE = slice(8, 12), slice(24, 28)
#: How many bytes of an entry are what it notes of its file (and its mode).
NOTES_BYTES = 40
_FLAGS = struct.Struct(">H")
_LONGEST_NAME = 0xFFF
_STAT = struct.Struct(">4I4xI4x3I")
_EXTENDED = 0x4000
#: Extensions that hold something the entries do not say.
_MEANT = (b"REUC", b"link", b"sdir")
#: Those that hold whatever the stat data of files and directories.
_PLAIN = frozenset({b"TREE", b"REUC", b"EOIE", b"IEOT"})


class FileStat(NamedTuple):
    """What an index notes of a file but for its device; git keeps 32 bits of each."""

    ctime_s: int
    ctime_ns: int
    mtime_s: int
    mtime_ns: int
    ino: int
    uid: int
    gid: int
    size: int


class Fresh(NamedTuple):
    """What one of two notes of files that the other does not, where that is all they differ in."""

    stats: dict[bytes, FileStat]
    #: What both note of files that were written when the older one was, or later: git does not
    #: trust that, but reads them, until there is a younger index.
    unsure: dict[bytes, FileStat]
    #: It notes nothing else that depends on where it was written: of directories, say.
    is_all: bool


class Index(NamedTuple):
    """An index file, read."""

    #: How long an object's id is.
    id_bytes: int
    names: list[bytes]
    #: Of each entry: what it says, and what it notes of its file.
    says: list[bytes]
    notes: list[bytes]
    meant: list[bytes]
    extensions: set[bytes]


def fresh_stat(one: bytes, other: bytes, written_s: int) -> Fresh | None:
    """What the other one notes anew; None if they differ in more than that, or cannot be read.

    `written_s`: when the first one was written.
    """
    if one == other:
        return Fresh({}, {}, True)
    try:
        mine, its = read_index_file(one), read_index_file(other)
    except (ValueError, struct.error, IndexError):
        return None
    if (mine.names, mine.says, mine.meant) != (its.names, its.says, its.meant):
        return None
    written = (written_s & 0xFFFFFFFF).to_bytes(4, "big")
    stats, unsure = {}, {}
    for name, old, new in zip(its.names, mine.notes, its.notes, strict=True):
        if old != new:
            stats[name] = FileStat(*_STAT.unpack(new))
        elif new[_MTIME_S] >= written:
            unsure[name] = FileStat(*_STAT.unpack(new))
    return Fresh(stats, unsure, its.extensions <= _PLAIN)


def read_index_file(data: bytes) -> Index:
    """`ValueError`, `IndexError` or `struct.error` if it is none that we know."""
    magic, version, count = HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index that we know")
    id_bytes = _id_bytes(data)
    flags_at = NOTES_BYTES + id_bytes
    found, at, previous = Index(id_bytes, [], [], [], [], set()), HEADER.size, b""
    for _ in range(count):
        (flags,) = _FLAGS.unpack_from(data, at + flags_at)
        fixed_end = name_at = at + flags_at + (4 if flags & _EXTENDED else 2)
        if version == 4:
            strip, name_at = _varint(data, name_at)
            end = data.index(b"\0", name_at)
            previous = previous[: len(previous) - strip] + data[name_at:end]
            following = end + 1
        else:
            end = data.index(b"\0", name_at)
            previous = data[name_at:end]
            following = at + ((end - at) // 8 + 1) * 8
        if flags & _LONGEST_NAME != min(len(previous), _LONGEST_NAME):
            raise ValueError("another kind of entries")
        fixed = data[at:fixed_end]
        found.names.append(previous)
        found.says.append(fixed[_MODE] + fixed[NOTES_BYTES:])
        found.notes.append(fixed[:NOTES_BYTES])
        at = following
    while at + 8 <= len(data) - id_bytes:
        name, size = struct.unpack_from(">4sI", data, at)
        found.extensions.add(name)
        if name in _MEANT:
            found.meant.append(data[at : at + 8 + size])
        at += 8 + size
    if at != len(data) - id_bytes:
        raise ValueError("another kind of end")
    return found


def _id_bytes(data: bytes) -> int:
    """Of an object; the index ends with a checksum of the same kind, or with zeros."""
    for algorithm in ("sha1", "sha256"):
        checksum = hashlib.new(algorithm, usedforsecurity=False)
        size = checksum.digest_size
        checksum.update(memoryview(data)[:-size])
        if data[-size:] == checksum.digest():
            return size
    if any(data[-20:]):
        raise ValueError("damaged, or of a kind that we do not know")
    return 20


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Git's offset encoding, as in packs."""
    byte = data[at]
    value = byte & 0x7F
    at += 1
    while byte & 0x80:
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
        at += 1
    return value, at
