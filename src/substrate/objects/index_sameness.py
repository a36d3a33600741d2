"""Whether two git index files say the same of every file, their stat data apart.

A plain ``git status`` rewrites the index with fresh stat data: no work of anybody's, and in a
world it may describe files of the world.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEADER = struct.Struct(">4sII")
#: ctime, mtime, dev, ino; then the mode; then uid, gid, size; then the id and the flags.
_MODE = slice(24, 28)
_REST_AT, _NAME_AT = 40, 62
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
    #: It notes nothing else that depends on where it was written: of directories, say.
    is_all: bool


class _Index(NamedTuple):
    names: list[bytes]
    #: Of each entry: what it says, and what it notes of its file.
    says: list[bytes]
    notes: list[bytes]
    meant: list[bytes]
    extensions: set[bytes]


def fresh_stat(one: bytes, other: bytes) -> Fresh | None:
    """What the other one notes anew; None if they differ in more than that, or cannot be read."""
    if one == other:
        return Fresh({}, True)
    try:
        mine, its = _read(one), _read(other)
    except (ValueError, struct.error, IndexError):
        return None
    if (mine.names, mine.says, mine.meant) != (its.names, its.says, its.meant):
        return None
    noted = zip(its.names, mine.notes, its.notes, strict=True)
    stats = {name: FileStat(*_STAT.unpack(new)) for name, old, new in noted if old != new}
    return Fresh(stats, its.extensions <= _PLAIN)


def _read(data: bytes) -> _Index:
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index that we know")
    found, at, previous = _Index([], [], [], [], set()), _HEADER.size, b""
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", data, at + 60)
        fixed_end = name_at = at + _NAME_AT + (2 if flags & _EXTENDED else 0)
        if version == 4:
            strip, name_at = _varint(data, name_at)
            end = data.index(b"\0", name_at)
            previous = previous[: len(previous) - strip] + data[name_at:end]
            following = end + 1
        else:
            end = data.index(b"\0", name_at)
            previous = data[name_at:end]
            following = at + ((end - at) // 8 + 1) * 8
        fixed = data[at:fixed_end]
        found.names.append(previous)
        found.says.append(fixed[_MODE] + fixed[_REST_AT:])
        found.notes.append(fixed[:_REST_AT])
        at = following
    while at + 8 <= len(data) - 20:
        name, size = struct.unpack_from(">4sI", data, at)
        found.extensions.add(name)
        if name in _MEANT:
            found.meant.append(data[at : at + 8 + size])
        at += 8 + size
    return found


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
