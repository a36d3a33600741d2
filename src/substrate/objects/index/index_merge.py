"""Merge two git indexes with a common base: what each side staged stays staged.

    base    a=1  b=1          one: a=2      other: b=2, c=1      together: a=2  b=2  c=1

Entries are compared by mode, id and flags, not by their stat data. An index with unresolved
conflicts, or a split or sparse index, is not merged.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable

from substrate.objects.index.index_equal import NOTES_BYTES, Index, read_index_file
from substrate.objects.index.index_format import HEADER

#: Git rebuilds these extensions by itself; any other extension would be lost.
_MADE_ANEW = frozenset({b"TREE", b"EOIE", b"IEOT"})
_MODE_BYTES = 4
_STAGE, _EXTENDED = 0x3000, 0x4000

#: By name: the stat data, and the content (mode, id, flags).
_Entries = dict[bytes, tuple[bytes, bytes]]


def put_together(base: bytes, one: bytes, other: bytes) -> bytes | None:
    """The merged index; None if both changed a path differently, or it cannot be decided here."""
    try:
        read = [read_index_file(data) for data in (base, one, other)]
    except (ValueError, struct.error, IndexError):
        return None
    sizes = {index.id_bytes for index in read}
    if len(sizes) > 1 or not all(index.extensions <= _MADE_ANEW for index in read):
        return None
    (id_bytes,) = sizes
    stood, its, mine = (_entries(index) for index in read)
    if any(_is_staged(says, id_bytes) for found in (its, mine) for _, says in found.values()):
        return None
    taken = _merged(stood, its, mine)
    if taken is None:
        return None
    changed = [name for name in its.keys() | stood.keys() if _says(its, name) != _says(stood, name)]
    if not _can_stand_together(sorted(taken), changed):
        return None
    return _written(taken, id_bytes)


def _entries(index: Index) -> _Entries:
    rows = zip(index.names, index.notes, index.says, strict=True)
    return {name: (notes, says) for name, notes, says in rows}


def _is_staged(says: bytes, id_bytes: int) -> bool:
    """Whether the entry is one side of a conflict."""
    return bool(_flags(says, id_bytes) & _STAGE)


def _flags(says: bytes, id_bytes: int) -> int:
    return int.from_bytes(says[_MODE_BYTES + id_bytes :][:2], "big")


def _says(entries: _Entries, name: bytes) -> bytes | None:
    found = entries.get(name)
    return None if found is None else found[1]


def _merged(stood: _Entries, its: _Entries, mine: _Entries) -> _Entries | None:
    out = dict(mine)
    for name in its.keys() | stood.keys():
        was, is_now = _says(stood, name), _says(its, name)
        if was == is_now:
            continue
        present = _says(mine, name)
        if present == is_now:
            continue
        if present != was:
            return None
        if is_now is None:
            del out[name]
        else:
            out[name] = its[name]
    return out


def _can_stand_together(names: list[bytes], changed: Iterable[bytes]) -> bool:
    """Whether no changed name would be both a file and a directory."""
    known = set(names)
    for name in changed:
        if name not in known:
            continue
        parts = name.split(b"/")
        if any(b"/".join(parts[:depth]) in known for depth in range(1, len(parts))):
            return False
        below = name + b"/"
        at = bisect_left(names, below)
        if at < len(names) and names[at].startswith(below):
            return False
    return True


def _written(entries: _Entries, id_bytes: int) -> bytes:
    is_extended = any(_flags(says, id_bytes) & _EXTENDED for _, says in entries.values())
    out = [HEADER.pack(b"DIRC", 3 if is_extended else 2, len(entries))]
    for name in sorted(entries):
        notes, says = entries[name]
        entry = notes[:NOTES_BYTES] + says[_MODE_BYTES:] + name
        out.append(entry + bytes(8 - len(entry) % 8))
    data = b"".join(out)
    kind = {20: "sha1", 32: "sha256"}[id_bytes]
    return data + hashlib.new(kind, data, usedforsecurity=False).digest()
