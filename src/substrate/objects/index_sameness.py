"""Whether two git index files say the same of every file, their stat data apart.

A plain ``git status`` rewrites the index with fresh stat data: no work of anybody's, and in a
world it describes files of the world.
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct(">4sII")
#: ctime, mtime, dev, ino; then the mode; then uid, gid, size; then the id and the flags.
_MODE = slice(24, 28)
_REST_AT, _NAME_AT = 40, 62
_EXTENDED = 0x4000
#: Extensions that hold something the entries do not say.
_MEANT = (b"REUC", b"link", b"sdir")


def same_but_for_stat(one: bytes, other: bytes) -> bool:
    """False also for what cannot be read: then they are taken to differ."""
    if one == other:
        return True
    try:
        return _meaning(one) == _meaning(other)
    except (ValueError, struct.error, IndexError):
        return False


def _meaning(data: bytes) -> tuple[list[bytes], list[bytes]]:
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index that we know")
    entries, at, previous = [], _HEADER.size, b""
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", data, at + 60)
        name_at = at + _NAME_AT + (2 if flags & _EXTENDED else 0)
        if version == 4:
            strip, name_at = _varint(data, name_at)
            end = data.index(b"\0", name_at)
            previous = previous[: len(previous) - strip] + data[name_at:end]
            following = end + 1
        else:
            end = data.index(b"\0", name_at)
            previous = data[name_at:end]
            following = at + ((end - at) // 8 + 1) * 8
        fixed_end = at + _NAME_AT + (2 if flags & _EXTENDED else 0)
        fixed = data[at:fixed_end]
        entries.append(fixed[_MODE] + fixed[_REST_AT:] + b"\0" + previous)
        at = following
    return entries, _extensions(data, at)


def _extensions(data: bytes, at: int) -> list[bytes]:
    out = []
    while at + 8 <= len(data) - 20:
        name, size = struct.unpack_from(">4sI", data, at)
        if name in _MEANT:
            out.append(data[at : at + 8 + size])
        at += 8 + size
    return out


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
