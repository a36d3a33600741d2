"""Read a whole git index by directory, for first use, without an object for each entry.

`git_index` parses entries one by one. Here regular expressions split the file, and comparing the
columns of a directory at a time finds unusual entries. The table itself knows only the byte ranges
of each directory's entries: the process that reads a directory parses them. This works only for an
index without extended flags; any other raises `UnusualIndexError`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import repeat
from typing import NamedTuple

from substrate.objects.index.git_index import UnusualIndexError, check_extensions
from substrate.objects.index.index_format import HEADER, PREFIXED_VERSION, VERSIONS

#: ctime, mtime, (device,) inode, mode, (owner, group,) size, id, flags: fields in brackets are not
#: compared.
_HEAD = "4I4x2I8xI20sH"
_HEAD_FIELDS = 9
_SECOND_NS = 1_000_000_000
_LONGEST = 0xFFF
_HEADER_BYTES = HEADER.size

#: The stat, the id and the flags; the name.
Row = tuple[bytes, bytes]
#: The position of the id in the first of them.
ROW_ID = slice(40, 60)

#: The beginning of an entry that git has not seen in the work tree: a conflict, intent to add.
#: After another entry's padding its start would be unclear. No other entry has so many NULs.
_NO_STAT = bytes(16)
#: Padding ends where the next entry begins, with the seconds of a time, which are not NUL. The
#: repetitions are possessive: with longer entries than expected (extended flags), backtracking
#: over all paddings would never end.
_NAME_AND_PADDING = rb"[^\0/]++\0{1,8}+"
#: The path is checked later, with the runs.
_ENTRY = rb".{62}[^\0]++\0{1,8}+"
_PATH = re.compile(rb"(?s).{62}([^\0]+)\0{1,8}")
_SIZES_AND_IDS = re.compile(rb"(?s).{36}(.{24})..[^\0]+\0{1,8}")
#: How many entries are matched at once: each uses memory until all of them are matched.
_MOST_AT_ONCE = 1000
_THOUSAND = re.compile(rb"(?s)(?:" + _ENTRY + rb"){%d}" % _MOST_AT_ONCE)
#: An entry and the following ones in the same directory.
_RUN = re.compile(
    rb"(?s).{62}((?:[^\0]*/)?)"
    + _NAME_AND_PADDING
    # Not possessive as a whole: Python before 3.11.5 has a bug there.
    + rb"(?:.{62}\1"
    + _NAME_AND_PADDING
    + rb"){0,%d}" % (_MOST_AT_ONCE - 1)
)
#: Version 4: how much to drop from the previous path, as a number with seven bits per byte; the
#: rest of the path.
_PREFIXED = re.compile(rb"(?s)(.{62})([\x80-\xff]*[\0-\x7f])([^\0]*)\0")


@cache
def _rows_below(length: int) -> re.Pattern[bytes]:
    """A pattern that splits the rows of a directory whose path has this length."""
    return re.compile(rb"(?s)(.{62}).{%d}([^\0]+)\0{1,8}" % length)


class IndexTable:
    """All entries of an index, in its order, and by directory (``b"a/b/"``)."""

    def __init__(self, entries: bytes, start: int, end: int, count: int) -> None:
        self.count = count
        self._entries, self._start, self._end = entries, start, end
        self._runs: list[tuple[int, int, bytes]] = []
        while start < end:
            run = _RUN.match(entries, start, end)
            if run is None:
                raise ValueError("an entry that is no file")
            self._runs.append((*run.span(), run[1]))
            start = run.end()
        #: Every directory above an entry, including the root: the ranges of its entries.
        self.directories: dict[bytes, list[tuple[int, int]]] = {b"": []}
        for first, last, directory in self._runs:
            self.directories.setdefault(directory, []).append((first, last))
        for directory in list(self.directories):
            above = directory[:-1].rpartition(b"/")[0]
            while above and above + b"/" not in self.directories:
                self.directories[above + b"/"] = []
                above = above.rpartition(b"/")[0]

    @classmethod
    def without_entries(cls, directories: Iterable[bytes]) -> IndexTable:
        """A table for a tree without an index."""
        table = cls(b"", 0, 0, 0)
        table.directories.update((directory, []) for directory in directories)
        return table

    def rows_of(self, directory: bytes) -> list[Row]:
        """The entries directly in this directory."""
        rows: list[Row] = []
        for first, last in self.directories[directory]:
            rows += self._rows(first, last, directory)
        return rows

    def _rows(self, first: int, last: int, directory: bytes) -> list[Row]:
        return _rows_below(len(directory)).findall(self._entries, first, last)

    def weights(self) -> dict[bytes, int]:
        """The approximate number of entries in each directory."""
        usual_bytes = max(1, (self._end - self._start) // max(1, self.count))
        return {
            directory: sum(last - first for first, last in runs) // usual_bytes
            for directory, runs in self.directories.items()
        }

    def all_rows(self) -> Iterator[tuple[bytes, Row]]:
        """Each entry with its directory, in the order of the index."""
        for first, last, directory in self._runs:
            for row in self._rows(first, last, directory):
                yield directory, row

    def paths_named(self, name: bytes) -> set[bytes]:
        """The paths that end in this name."""
        found: set[bytes] = set()
        starts = [first for first, _, _ in self._runs]
        at = self._entries.find(name + b"\0", self._start, self._end)
        while at >= 0:
            first, last, directory = self._runs[bisect_right(starts, at) - 1]
            if any(row[1] == name for row in self._rows(first, last, directory)):
                found.add(directory + name)
            at = self._entries.find(name + b"\0", last, self._end)
        return found

    def sizes_and_ids(self) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """For each entry the file's size when git saw it (its low 32 bits), and its blob."""
        found = _SIZES_AND_IDS.findall(self._entries, self._start, self._end)
        flat = struct.unpack(">" + "I20s" * len(found), b"".join(found))
        return flat[0::2], flat[1::2]


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
    """The entries of an index file's bytes; `UnusualIndexError` if this module cannot read it.

    Only in a damaged index can a row be misread. Callers must therefore use a row only if its stat
    is exactly that of the file.
    """
    if len(data) < 32 or data[:4] != b"DIRC":
        raise UnusualIndexError("no index")
    version, count = struct.unpack_from(">II", data, 4)
    with memoryview(data) as view:
        if hashlib.sha1(view[:-20], usedforsecurity=False).digest() != data[-20:]:
            raise UnusualIndexError("the index's checksum is missing or wrong")
    if version not in VERSIONS:
        raise UnusualIndexError(f"index version {version}")
    try:
        if version == PREFIXED_VERSION:
            entries, end = _without_prefixes(data, count)
            span = (0, len(entries))
        else:
            entries, end = data, _end_of_entries(data, count)
            span = (_HEADER_BYTES, end)
        if data.find(_NO_STAT, _HEADER_BYTES, end) >= 0:
            raise ValueError("entries without a stat")
        check_extensions(data, end)
        return IndexTable(entries, *span, count)
    except (struct.error, ValueError) as error:
        raise UnusualIndexError(str(error)) from error


def _end_of_entries(data: bytes, count: int) -> int:
    if not count:
        return _HEADER_BYTES
    thousands, rest = divmod(count - 1, _MOST_AT_ONCE)
    some = re.compile(rb"(?s)(?:" + _ENTRY + rb"){%d}" % rest)
    at = _HEADER_BYTES
    for pattern in (*repeat(_THOUSAND, thousands), some):
        found = pattern.match(data, at)
        if found is None:
            raise ValueError("entries are missing")
        at = found.end()
    last = _PATH.match(data, at)
    if last is None:
        raise ValueError("entries are missing")
    # Padded with one to eight NULs; a further NUL may belong to the checksum.
    return at + ((last.end(1) - at + 8) & ~7)


def _without_prefixes(data: bytes, count: int) -> tuple[bytes, int]:
    """The entries of version 4 with whole paths, and where they end."""
    found = _PREFIXED.findall(data, _HEADER_BYTES)[:count]
    if len(found) != count:
        raise ValueError("entries are missing")
    path = b""
    parts: list[bytes] = []
    for head, drop, rest in found:
        path = path[: max(0, len(path) - _number(drop))] + rest
        parts += (head, path, b"\0")
    last = b"".join(found[-1]) if found else b""
    return b"".join(parts), data.rindex(last) + len(last) + 1 if found else _HEADER_BYTES


def _number(data: bytes) -> int:
    number = data[0] & 0x7F
    for byte in data[1:]:
        number = ((number + 1) << 7) | (byte & 0x7F)
    return number


def columns(rows: list[Row]) -> Columns | None:
    """The rows of one directory as columns; None if one of them is not a plain entry."""
    if not rows:
        return NO_COLUMNS
    heads, names = zip(*rows, strict=True)
    numbers = struct.unpack(">" + _HEAD * len(rows), b"".join(heads))
    c_s, c_ns, m_s, m_ns, inos, modes, sizes, oids, flags = (
        numbers[field::_HEAD_FIELDS] for field in range(_HEAD_FIELDS)
    )
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
