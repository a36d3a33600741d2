"""A git index read whole, by directory, for first use: every entry, none made an object of its own.

`git_index` looks at entries one by one. Here a regular expression takes the file apart in one go,
and what is unusual about an entry is found by comparing columns of a directory at a time. Only
an index without extended flags is read this way; any other is `UnusualIndexError`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from substrate.objects.git_index import UnusualIndexError, check_extensions

#: ctime, mtime, (device,) inode, mode, (owner, group,) size, id, flags: what is in brackets is
#: not compared.
_HEAD = struct.Struct(">4I4x2I8xI20sH")
_SIZE_AND_ID = struct.Struct(">36xI20s2x")
_PREFIXED_VERSION = 4
_SECOND_NS = 1_000_000_000
_LONGEST = 0xFFF

#: The stat, the id and the flags; the directory (with its slash); the name.
Row = tuple[bytes, bytes, bytes]

_FIXED = rb"(?s)(.{62})"
#: How an entry begins that git has not seen in the work tree: a conflict, intent to add. After
#: another's padding one would not know where it begins. No other entry has so many NULs.
_NO_STAT = bytes(16)
#: Padding ends where the next entry begins, with the seconds of a time: not with a NUL.
_PADDED = re.compile(_FIXED + rb"((?:[^\0]*/)?)([^\0/]+)\0{1,8}")
#: Version 4: how much to drop from the path before, as a number of seven bits a byte; the rest.
_PREFIXED = re.compile(_FIXED + rb"([\x80-\xff]*[\0-\x7f])([^\0]*)\0")
_ENTRY = {2: _PADDED, 3: _PADDED, _PREFIXED_VERSION: _PREFIXED}


class IndexTable(NamedTuple):
    """All entries of an index, in its order, and again by directory (``b"a/b/"``)."""

    rows: list[Row]
    by_directory: dict[bytes, list[Row]]


class Columns(NamedTuple):
    """The entries of one directory."""

    names: tuple[bytes, ...]
    oids: tuple[bytes, ...]
    modes: tuple[int, ...]
    sizes: tuple[int, ...]
    mtimes_ns: tuple[int, ...]
    ctimes_ns: tuple[int, ...]
    inos: tuple[int, ...]


NO_COLUMNS = Columns((), (), (), (), (), (), ())


def read_table(data: bytes) -> IndexTable:
    """The entries of an index file's bytes; `UnusualIndexError` if this is not the way to read it.

    A row may be misread in a damaged index only: nobody may believe one whose stat is not
    exactly that of the file.
    """
    if len(data) < 32 or data[:4] != b"DIRC":
        raise UnusualIndexError("no index")
    version, count = struct.unpack_from(">II", data, 4)
    if hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
        raise UnusualIndexError("the index's checksum is missing or wrong")
    if version not in _ENTRY:
        raise UnusualIndexError(f"index version {version}")
    found: list[Row] = _ENTRY[version].findall(data, 12)[:count]
    try:
        if len(found) != count:
            raise ValueError("entries are missing")
        end = _end_of_entries(data, version, found)
        if data.find(_NO_STAT, 12, end) >= 0:
            raise ValueError("entries without a stat")
        check_extensions(data, end)
    except (struct.error, ValueError) as error:
        raise UnusualIndexError(str(error)) from error
    rows = list(_whole_paths(found)) if version == _PREFIXED_VERSION else found
    return IndexTable(rows, _by_directory(rows))


def _end_of_entries(data: bytes, version: int, found: list[Row]) -> int:
    if not found:
        return 12
    last = b"".join(found[-1])
    at = data.rindex(last)
    if version == _PREFIXED_VERSION:
        return at + len(last) + 1
    return at + ((len(last) + 8) & ~7)  # padded with one to eight NULs


def _whole_paths(found: list[Row]) -> Iterator[Row]:
    path = b""
    for head, drop, rest in found:
        path = path[: max(0, len(path) - _number(drop))] + rest
        above, slash, name = path.rpartition(b"/")
        yield (head, above + slash, name)


def _number(data: bytes) -> int:
    number = data[0] & 0x7F
    for byte in data[1:]:
        number = ((number + 1) << 7) | (byte & 0x7F)
    return number


def _by_directory(rows: list[Row]) -> dict[bytes, list[Row]]:
    """Rows by directory; every directory that one of them is in has a list, the root too."""
    groups: dict[bytes, list[Row]] = {b"": []}
    for directory, run in groupby(rows, itemgetter(1)):
        group = groups.get(directory)
        if group is None:
            group = groups[directory] = []
        group += run
    for directory in list(groups):
        above = directory[:-1].rpartition(b"/")[0]
        while above and above + b"/" not in groups:
            groups[above + b"/"] = []
            above = above.rpartition(b"/")[0]
    return groups


def columns(rows: list[Row]) -> Columns | None:
    """The rows of one directory as columns; None if one of them is no plain entry."""
    if not rows:
        return NO_COLUMNS
    heads, _, names = zip(*rows, strict=True)
    numbers = _HEAD.iter_unpack(b"".join(heads))
    c_s, c_ns, m_s, m_ns, inos, modes, sizes, oids, flags = zip(*numbers, strict=True)
    if max(flags) > _LONGEST:  # a stage, "assume unchanged", or extended flags
        return None
    return Columns(
        names,
        oids,
        modes,
        sizes,
        tuple([s * _SECOND_NS + ns for s, ns in zip(m_s, m_ns, strict=True)]),
        tuple([s * _SECOND_NS + ns for s, ns in zip(c_s, c_ns, strict=True)]),
        inos,
    )


def sizes_and_ids(rows: list[Row]) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Of each row the size that the file had when git looked (its low 32 bits), and the blob."""
    pairs = _SIZE_AND_ID.iter_unpack(b"".join([row[0] for row in rows]))
    sizes, oids = zip(*pairs, strict=True) if rows else ((), ())
    return sizes, oids
