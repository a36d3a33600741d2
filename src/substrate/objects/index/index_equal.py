"""Whether two git index files are the same for every file, apart from stat data.

A plain ``git status`` rewrites the index with fresh stat data. That is not the user's work, and in
a world it may describe files of the world.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from substrate.objects.index.index_format import (
    HEADER,
    PREFIXED_VERSION,
    VERSIONS,
    extensions,
    prefixed_path,
)

#: ctime, mtime, dev, ino; then the mode; then uid, gid, size; then the id and the flags.
_MTIME_S, _MODE = slice(8, 12), slice(24, 28)
#: How many bytes of an entry are the file's stat data (and its mode).
NOTES_BYTES = 40
_FLAGS = struct.Struct(">H")
_LONGEST_NAME = 0xFFF
_STAT = struct.Struct(">4I4xI4x3I")
_EXTENDED = 0x4000
#: Extensions with information that is not in the entries.
_MEANT = (b"REUC", b"link", b"sdir")
#: Extensions that do not depend on the stat data of files and directories.
_PLAIN = frozenset({b"TREE", b"REUC", b"EOIE", b"IEOT"})


class FileStat(NamedTuple):
    """An index entry's stat data of a file, without the device; git keeps 32 bits of each."""

    ctime_s: int
    ctime_ns: int
    mtime_s: int
    mtime_ns: int
    ino: int
    uid: int
    gid: int
    size: int


class Fresh(NamedTuple):
    """The stat data in which two indexes differ, if they differ in nothing else."""

    stats: dict[bytes, FileStat]
    #: Equal stat data of files modified at the time of the older index or later: git does not
    #: trust it and reads these files until there is a younger index.
    unsure: dict[bytes, FileStat]
    #: Nothing else in it depends on where it was written, such as data about directories.
    is_all: bool


class Index(NamedTuple):
    """A parsed index file."""

    #: The length of an object id.
    id_bytes: int
    names: list[bytes]
    #: For each entry: its content (mode, id, flags), and the file's stat data.
    says: list[bytes]
    notes: list[bytes]
    meant: list[bytes]
    extensions: set[bytes]


def fresh_stat(one: bytes, other: bytes, written_s: int) -> Fresh | None:
    """The stat data that is new in `other`; None if more differs, or one cannot be read.

    `written_s`: when the first index was written.
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
    """Parse an index; `ValueError`, `IndexError` or `struct.error` for an unknown format."""
    magic, version, count = HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in VERSIONS:
        raise ValueError("no index that we know")
    id_bytes = _id_bytes(data)
    flags_at = NOTES_BYTES + id_bytes
    found, at, previous = Index(id_bytes, [], [], [], [], set()), HEADER.size, b""
    for _ in range(count):
        (flags,) = _FLAGS.unpack_from(data, at + flags_at)
        fixed_end = name_at = at + flags_at + (4 if flags & _EXTENDED else 2)
        if version == PREFIXED_VERSION:
            previous, following = prefixed_path(data, name_at, previous)
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
    for name, start, end in extensions(data, at, id_bytes):
        found.extensions.add(name)
        if name in _MEANT:
            found.meant.append(data[start - 8 : end])
    return found


def _id_bytes(data: bytes) -> int:
    """The length of an object id: the index ends with a checksum of that length, or with zeros."""
    for algorithm in ("sha1", "sha256"):
        checksum = hashlib.new(algorithm, usedforsecurity=False)
        size = checksum.digest_size
        checksum.update(memoryview(data)[:-size])
        if data[-size:] == checksum.digest():
            return size
    if any(data[-20:]):
        raise ValueError("damaged, or of a kind that we do not know")
    return 20
