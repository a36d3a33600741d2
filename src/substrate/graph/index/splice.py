"""The byte range of each path in a snapshot's files, and splicing a new snapshot from an old one.

Every file of a snapshot is sorted by path, and the lines of a path are contiguous: one byte range
per path and file. The snapshot of a neighbouring commit is made by copying the unchanged ranges,
inside the kernel, and writing those of the paths that differ. The same splice undoes a fold.

The name hashes answer "which files define `f`?" and "which files mention `f`?" by a byte search,
without reading any symbol.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

from substrate.graph.checked_read import damaged, read_range
from substrate.graph.index.graph_paths import FILES, SECTIONS
from substrate.graph.index.path_section import Section
from substrate.system.files import write_all

_MAGIC = b"ctxsec3\n"
_HEAD = struct.Struct("<8sIIIIIII")
_COPY_BYTES = 1 << 30
#: A pass over a table that notes every name's rows takes as long as 60 byte searches for a name.
_MANY_LOOKUPS = 60
#: If one question has more names than this, further questions will follow: do the pass at once.
_FEW = 20

_Table = Literal["defined", "mentioned", "called"]


class Sections:
    """The table of one snapshot; columns are parallel, sorted by path."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.keys: list[str] = []
        self.oids: list[bytes] = []
        #: Five lengths for each path, one after the other.
        self.lengths = array("I")
        #: The CRC-32 of each of these ranges.
        self.sums = array("I")
        self.troubles = bytearray()
        self.defined_counts = array("I")
        self.mentioned_counts = array("I")
        self.called_counts = array("I")
        self.defined = b""
        self.mentioned = b""
        self.called = b""
        self._offsets: dict[int, list[int]] = {}
        self._lookups: Counter[str] = Counter()
        self._holders: dict[str, dict[int, list[int]]] = {}
        self._defining: dict[int, _Kept] = {}
        self._in_directory: dict[int, dict[bytes, list[int]]] = {}
        self._rows_in: dict[bytes, list[int]] = {}

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

    def rows_below(self, directory: bytes) -> range:
        """Rows of the paths in a directory and below it; ``b""`` is the root."""
        if not directory:
            return range(len(self.paths))
        # ``0`` is the byte after ``/``: sorted paths with a common prefix are contiguous.
        start = bisect_left(self.paths, directory + b"/")
        return range(start, bisect_left(self.paths, directory + b"0", start))

    def rows_in(self, directory: bytes) -> list[int]:
        """Rows of the paths directly in a directory."""
        if directory not in self._rows_in:
            depth = len(directory) + 1 if directory else 0
            self._rows_in[directory] = [
                row for row in self.rows_below(directory) if b"/" not in self.paths[row][depth:]
            ]
        return self._rows_in[directory]

    def rows_defining(self, hash_: int, directory: bytes | None = None) -> Iterator[int]:
        """Rows with a symbol whose name has this hash, in order; optionally in `directory` only."""
        if hash_ not in self._defining:
            self._defining[hash_] = _Kept(self._rows_with("defined", hash_))
        kept = iter(self._defining[hash_])
        if directory is None:
            return kept
        if hash_ not in self._in_directory:
            grouped = self._in_directory[hash_] = {}
            for row in kept:
                grouped.setdefault(self.paths[row].rpartition(b"/")[0], []).append(row)
        return iter(self._in_directory[hash_].get(directory, ()))

    def rows_mentioning(self, hashes: set[int]) -> set[int]:
        """Rows that mention any of these names (or, rarely, another one with the same hash)."""
        return set[int]().union(*self.rows_mentioning_each(hashes).values())

    def rows_mentioning_each(self, hashes: set[int]) -> dict[int, set[int]]:
        """The same for each name on its own."""
        if len(hashes) > _FEW:
            self._lookups["mentioned"] = _MANY_LOOKUPS
        return {hash_: set(self._rows_with("mentioned", hash_)) for hash_ in hashes}

    def rows_mentioning_one(self, hash_: int) -> Iterator[int]:
        """The same for a single name, in order."""
        return self._rows_with("mentioned", hash_)

    def rows_calling(self, hash_: int) -> Iterator[int]:
        """Rows with an edge to the symbol whose id has this hash, in order."""
        return self._rows_with("called", hash_)

    def _rows_with(self, which: _Table, hash_: int) -> Iterator[int]:
        self._lookups[which] += 1
        if which not in self._holders:
            table, starts = {
                "defined": (self.defined, self.defined_starts),
                "mentioned": (self.mentioned, self.mentioned_starts),
                "called": (self.called, self.called_starts),
            }[which]
            if self._lookups[which] <= _MANY_LOOKUPS:
                return _rows(table, starts(), hash_)
            self._holders[which] = _holders(table, starts())
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
        """Add a row at the end. The caller joins the name tables once: `with_names`."""
        self.paths.append(path)
        self.keys.append(section.key)
        self.oids.append(section.oid)
        self.lengths.extend([len(chunk) for chunk in section.chunks])
        self.sums.extend([zlib.crc32(chunk) for chunk in section.chunks])
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
        self.sums += other.sums[5 * start : 5 * end]
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
        counts = (self.defined_counts, self.mentioned_counts, self.called_counts)
        columns = (self.lengths, self.sums, *counts)
        head = _HEAD.pack(_MAGIC, len(self.paths), *map(len, (*texts, *tables)))
        sum_ = 0
        with open(directory / SECTIONS, "wb") as file:
            for part in (head, *texts, bytes(self.troubles), *map(_packed, columns), *tables):
                file.write(part)
                sum_ = zlib.crc32(part, sum_)
            file.write(sum_.to_bytes(4, "little"))

    @classmethod
    def load(cls, directory: Path) -> Sections:
        """Load the table; `DamagedStoreError` if it differs from what was saved."""
        try:
            return cls.parse((directory / SECTIONS).read_bytes())
        except (ValueError, struct.error) as error:
            raise damaged(directory / SECTIONS) from error

    @classmethod
    def parse(cls, raw: bytes) -> Sections:
        magic, count, *sizes = _HEAD.unpack_from(raw)
        if magic != _MAGIC or zlib.crc32(memoryview(raw)[:-4]) != int.from_bytes(
            raw[-4:], "little"
        ):
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
        new.sums = _unpacked(take(20 * count))
        new.defined_counts = _unpacked(take(4 * count))
        new.mentioned_counts = _unpacked(take(4 * count))
        new.called_counts = _unpacked(take(4 * count))
        new.defined, new.mentioned, new.called = (take(size) for size in sizes[3:])
        return new


class _Kept:
    """Caches what an iterator returned, so that it can be iterated again; reads on if needed."""

    def __init__(self, source: Iterator[int]) -> None:
        self._source = source
        self._seen: list[int] = []

    def __iter__(self) -> Iterator[int]:
        at = 0
        while True:
            if at == len(self._seen):
                more = next(self._source, None)
                if more is None:
                    return
                self._seen.append(more)
            yield self._seen[at]
            at += 1


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


def _holders(table: bytes, starts: list[int]) -> dict[int, list[int]]:
    """The rows of every hash, in order; a row that has a hash twice is there twice."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    hashes = _unpacked(table)
    for row, (start, end) in enumerate(pairwise(starts)):
        for hash_ in hashes[start:end]:
            found[hash_].append(row)
    return found


def _packed(values: array[int]) -> bytes:
    return values.tobytes()  # the files stay on this machine: use its own byte order


def _unpacked(raw: bytes) -> array[int]:
    values = array("I")
    values.frombytes(raw)
    return values


def splice(
    base_directory: Path, base: Sections, edits: Mapping[bytes, Section | None], target: Path,
    *, share: bool = True,
) -> Sections:  # fmt: skip
    """Write into `target` the snapshot that differs from `base` by `edits`; None removes a path.

    `share`: a file without differences may be a hard link to that of `base`.
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
    """Share a file without differences: snapshots are never modified."""
    for path, section in edits.items():
        row = base.find(path)
        before = read_range(base_directory, base, row, file) if row >= 0 else b""
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
    """Runs of rows of the base to keep, each with the edit that follows it."""
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
            pass  # across file systems, or an old kernel: copy in user space
    while count > 0:
        data = os.pread(source, min(count, 1 << 20), offset)
        if not data:
            raise OSError("a snapshot's file is shorter than its table says")
        write_all(target, data)
        offset, count = offset + len(data), count - len(data)


def read_section(directory: Path, table: Sections, row: int) -> Section:
    """One path's section, read back."""
    chunks = [read_range(directory, table, row, file) for file in range(len(FILES))]
    return Section(
        table.oids[row],
        table.keys[row],
        (chunks[0], chunks[1], chunks[2], chunks[3], chunks[4]),
        *table.hashes(row, row + 1),
        bool(table.troubles[row]),
    )
