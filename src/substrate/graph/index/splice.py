"""Which bytes of a snapshot's files belong to which path, and how a new snapshot is spliced.

Every file of a snapshot is sorted by path, and a path's lines stand together: one byte range per
path and file. A neighbouring commit's snapshot is made by copying the ranges in between, inside
the kernel, and writing those of the paths that differ. The same splice undoes a fold.

The name hashes answer "who defines `f`?" and "who mentions `f`?" by a byte search, without
reading any symbol.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Literal

from substrate.graph.layout import FILES, SECTIONS
from substrate.graph.section import Section
from substrate.system.files import write_all

_MAGIC = b"ctxsec2\n"
_HEAD = struct.Struct("<8sIIIIIII")
_COPY_BYTES = 1 << 30
#: Up to so many names are searched for one by one, more by one pass over the table.
_FEW = 40
_MANY_LOOKUPS = 100


class Sections:
    """The table of one snapshot; columns are parallel, sorted by path."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.keys: list[str] = []
        self.oids: list[bytes] = []
        #: Five lengths a path, one after the other.
        self.lengths = array("I")
        self.troubles = bytearray()
        self.defined_counts = array("I")
        self.mentioned_counts = array("I")
        self.called_counts = array("I")
        self.defined = b""
        self.mentioned = b""
        self.called = b""
        self._offsets: dict[int, list[int]] = {}
        self._lookups: Counter[str] = Counter()
        self._holders: dict[str, defaultdict[int, list[int]]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, path: bytes) -> int:
        """The row of `path`, or -1."""
        at = bisect_left(self.paths, path)
        return at if at < len(self.paths) and self.paths[at] == path else -1

    def offsets(self, file: int) -> list[int]:
        """Where each path's range begins in a file, and the file's end."""
        if file not in self._offsets:
            self._offsets[file] = [0, *accumulate(self.lengths[file::5])]
        return self._offsets[file]

    def byte_range(self, row: int, file: int) -> tuple[int, int]:
        offsets = self.offsets(file)
        return offsets[row], offsets[row + 1]

    # -- names ----------------------------------------------------------------------------------

    def rows_defining(self, hash_: int) -> Iterator[int]:
        """Rows with a symbol whose name has this hash, in order."""
        return self._rows_with("defined", hash_)

    def rows_mentioning(self, hashes: set[int]) -> set[int]:
        """Rows that mention any of these names (or, rarely, another one with the same hash)."""
        starts = self.mentioned_starts()
        if len(hashes) <= _FEW:
            return {row for hash_ in hashes for row in _rows(self.mentioned, starts, hash_)}
        table = _unpacked(self.mentioned)
        places = (at for at, hash_ in enumerate(table) if hash_ in hashes)
        return {bisect_right(starts, at) - 1 for at in places}

    def rows_calling(self, hash_: int) -> Iterator[int]:
        """Rows with an edge to the symbol whose id has this hash, in order."""
        return self._rows_with("called", hash_)

    def _rows_with(self, which: Literal["defined", "called"], hash_: int) -> Iterator[int]:
        table = self.defined if which == "defined" else self.called
        starts = self.defined_starts() if which == "defined" else self.called_starts()
        self._lookups[which] += 1
        if self._lookups[which] <= _MANY_LOOKUPS:
            return _rows(table, starts, hash_)
        if which not in self._holders:  # asked that often, one pass over the table pays
            holders = self._holders[which] = defaultdict(list)
            hashes = _unpacked(table)
            for row in range(len(self.paths)):
                for held in hashes[starts[row] : starts[row + 1]]:
                    holders[held].append(row)
        return iter(dict.fromkeys(self._holders[which].get(hash_, ())))

    def called_starts(self) -> list[int]:
        return self._starts(-3, self.called_counts)

    def defined_starts(self) -> list[int]:
        return self._starts(-1, self.defined_counts)

    def mentioned_starts(self) -> list[int]:
        return self._starts(-2, self.mentioned_counts)

    def _starts(self, which: int, counts: array[int]) -> list[int]:
        if which not in self._offsets:
            self._offsets[which] = [0, *accumulate(counts)]
        return self._offsets[which]

    # -- building -------------------------------------------------------------------------------

    def append(self, path: bytes, section: Section) -> None:
        """Add a row at the end. Name tables are joined by the caller, once: `with_names`."""
        self.paths.append(path)
        self.keys.append(section.key)
        self.oids.append(section.oid)
        self.lengths.extend([len(chunk) for chunk in section.chunks])
        self.troubles.append(section.has_trouble)
        self.defined_counts.append(len(section.defined) // 4)
        self.mentioned_counts.append(len(section.mentioned) // 4)
        self.called_counts.append(len(section.called) // 4)

    def extend(self, other: Sections, start: int, end: int) -> tuple[bytes, bytes, bytes]:
        """Add rows of another table; returns their name hashes."""
        self.paths += other.paths[start:end]
        self.keys += other.keys[start:end]
        self.oids += other.oids[start:end]
        self.lengths += other.lengths[5 * start : 5 * end]
        self.troubles += other.troubles[start:end]
        self.defined_counts += other.defined_counts[start:end]
        self.mentioned_counts += other.mentioned_counts[start:end]
        self.called_counts += other.called_counts[start:end]
        return other.hashes(start, end)

    def hashes(self, start: int, end: int) -> tuple[bytes, bytes, bytes]:
        """The defined, mentioned and called hashes of some rows."""
        d, m, c = self.defined_starts(), self.mentioned_starts(), self.called_starts()
        return (
            self.defined[4 * d[start] : 4 * d[end]],
            self.mentioned[4 * m[start] : 4 * m[end]],
            self.called[4 * c[start] : 4 * c[end]],
        )

    # -- disk -----------------------------------------------------------------------------------

    def save(self, directory: Path) -> None:
        texts = b"\0".join(self.paths), "\0".join(self.keys).encode(), b"".join(self.oids)
        tables = (self.defined, self.mentioned, self.called)
        columns = (self.lengths, self.defined_counts, self.mentioned_counts, self.called_counts)
        with open(directory / SECTIONS, "wb") as file:
            file.write(_HEAD.pack(_MAGIC, len(self.paths), *map(len, (*texts, *tables))))
            for part in (*texts, bytes(self.troubles), *map(_packed, columns), *tables):
                file.write(part)

    @classmethod
    def load(cls, directory: Path) -> Sections:
        return cls.parse((directory / SECTIONS).read_bytes())

    @classmethod
    def parse(cls, raw: bytes) -> Sections:
        magic, count, *sizes = _HEAD.unpack_from(raw)
        if magic != _MAGIC:
            raise ValueError("not a table of sections")
        new = cls()
        at = _HEAD.size

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return raw[at - size : at]

        paths, keys, oids = (take(size) for size in sizes[:3])
        if count:
            new.paths, new.keys = paths.split(b"\0"), keys.decode().split("\0")
            width = len(oids) // count
            new.oids = [oids[i : i + width] for i in range(0, len(oids), width)]
        new.troubles = bytearray(take(count))
        new.lengths = _unpacked(take(20 * count))
        new.defined_counts = _unpacked(take(4 * count))
        new.mentioned_counts = _unpacked(take(4 * count))
        new.called_counts = _unpacked(take(4 * count))
        new.defined, new.mentioned, new.called = (take(size) for size in sizes[3:])
        return new


def _rows(table: bytes, starts: list[int], hash_: int) -> Iterator[int]:
    """Rows whose hashes include this one, in order, each once."""
    needle = hash_.to_bytes(4, sys.byteorder)
    last = -1
    at = table.find(needle)
    while at >= 0:
        if at % 4 == 0:
            row = bisect_right(starts, at // 4) - 1
            if row != last:
                yield row
                last = row
        at = table.find(needle, at + 1)


def _packed(values: array[int]) -> bytes:
    return values.tobytes()  # the files are private to this machine: its own byte order will do


def _unpacked(raw: bytes) -> array[int]:
    values = array("I")
    values.frombytes(raw)
    return values


def splice(
    base_directory: Path, base: Sections, edits: Mapping[bytes, Section | None], target: Path,
    *, share: bool = True,
) -> Sections:  # fmt: skip
    """Write into `target` the snapshot that differs from `base` by `edits`; None removes a path.

    `share`: a file in which nothing differs may be a link to that of `base`.
    """
    new = Sections()
    hashes: list[tuple[bytes, bytes, bytes]] = []
    runs = list(_runs(base, edits))
    for start, end, path, section in runs:
        if end > start:
            hashes.append(new.extend(base, start, end))
        if section is not None:
            new.append(path, section)
            hashes.append((section.defined, section.mentioned, section.called))
    new.defined, new.mentioned, new.called = (b"".join(h[i] for h in hashes) for i in range(3))
    new.save(target)
    for file, name in enumerate(FILES):
        if not (share and _link(base_directory, base, edits, target, file)):
            _splice_file(base_directory / name, base.offsets(file), runs, target / name, file)
    return new


def _link(
    base_directory: Path, base: Sections, edits: Mapping[bytes, Section | None], target: Path,
    file: int,
) -> bool:  # fmt: skip
    """A file in which nothing differs is shared: snapshots are never written to again."""
    for path, section in edits.items():
        row = base.find(path)
        before = _read_range(base_directory / FILES[file], base, row, file) if row >= 0 else b""
        if before != (section.chunks[file] if section is not None else b""):
            return False
    try:
        os.link(base_directory / FILES[file], target / FILES[file])
    except OSError:
        return False
    return True


def _splice_file(
    source: Path, offsets: list[int], runs: list[tuple[int, int, bytes, Section | None]],
    target: Path, file: int,
) -> None:  # fmt: skip
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    old = os.open(source, os.O_RDONLY)
    try:
        for start, end, _, section in runs:
            if end > start:
                _copy(old, out, offsets[start], offsets[end] - offsets[start])
            if section is not None:
                write_all(out, section.chunks[file])
    finally:
        os.close(out)
        os.close(old)


def _runs(
    base: Sections, edits: Mapping[bytes, Section | None]
) -> Iterator[tuple[int, int, bytes, Section | None]]:
    """Rows of the base to keep, each followed by the edit that comes behind them."""
    at = 0
    for path in sorted(edits):
        place = bisect_left(base.paths, path, at)
        yield at, place, path, edits[path]
        is_there = place < len(base.paths) and base.paths[place] == path
        at = place + is_there
    yield at, len(base.paths), b"", None


def _copy(source: int, target: int, offset: int, count: int) -> None:
    if hasattr(os, "copy_file_range"):
        try:
            while count > 0:
                done = os.copy_file_range(source, target, min(count, _COPY_BYTES), offset)
                if done == 0:
                    raise OSError("a snapshot's file is shorter than its table says")
                offset, count = offset + done, count - done
            return
        except OSError:
            pass  # across file systems, or an old kernel: by hand
    while count > 0:
        data = os.pread(source, min(count, 1 << 20), offset)
        if not data:
            raise OSError("a snapshot's file is shorter than its table says")
        write_all(target, data)
        offset, count = offset + len(data), count - len(data)


def read_section(directory: Path, table: Sections, row: int) -> Section:
    """One path's section, read back."""
    chunks = [_read_range(directory / name, table, row, file) for file, name in enumerate(FILES)]
    return Section(
        table.oids[row],
        table.keys[row],
        (chunks[0], chunks[1], chunks[2], chunks[3], chunks[4]),
        *table.hashes(row, row + 1),
        bool(table.troubles[row]),
    )


def _read_range(path: Path, table: Sections, row: int, file: int) -> bytes:
    start, end = table.byte_range(row, file)
    with open(path, "rb") as opened:
        opened.seek(start)
        return opened.read(end - start)
