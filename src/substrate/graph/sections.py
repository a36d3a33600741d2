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
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from substrate.graph.layout import FILES, SECTIONS
from substrate.graph.section import Section
from substrate.system.files import write_all

_MAGIC = b"ctxsec1\n"
_HEAD = struct.Struct("<8sIIIIIIII")
_COPY_BYTES = 1 << 30
#: Up to so many names are searched for one by one, more by one pass over the table.
_FEW = 40


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
        self.defined = b""
        self.mentioned = b""
        self._offsets: dict[int, list[int]] = {}

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
        return _rows(self.defined, self.defined_starts(), hash_)

    def rows_mentioning(self, hashes: set[int]) -> set[int]:
        """Rows that mention any of these names (or, rarely, another one with the same hash)."""
        starts = self.mentioned_starts()
        if len(hashes) <= _FEW:
            return {row for hash_ in hashes for row in _rows(self.mentioned, starts, hash_)}
        table = _unpacked(self.mentioned)
        places = (at for at, hash_ in enumerate(table) if hash_ in hashes)
        return {bisect_right(starts, at) - 1 for at in places}

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
        self.lengths.extend(len(chunk) for chunk in section.chunks)
        self.troubles.append(section.has_trouble)
        self.defined_counts.append(len(section.defined) // 4)
        self.mentioned_counts.append(len(section.mentioned) // 4)

    def extend(self, other: Sections, start: int, end: int) -> tuple[bytes, bytes]:
        """Add rows of another table; returns their name hashes."""
        self.paths += other.paths[start:end]
        self.keys += other.keys[start:end]
        self.oids += other.oids[start:end]
        self.lengths += other.lengths[5 * start : 5 * end]
        self.troubles += other.troubles[start:end]
        self.defined_counts += other.defined_counts[start:end]
        self.mentioned_counts += other.mentioned_counts[start:end]
        d, m = other.defined_starts(), other.mentioned_starts()
        return (
            other.defined[4 * d[start] : 4 * d[end]],
            other.mentioned[4 * m[start] : 4 * m[end]],
        )

    # -- disk -----------------------------------------------------------------------------------

    def save(self, directory: Path) -> None:
        paths, keys = b"\0".join(self.paths), "\0".join(self.keys).encode()
        oids = b"".join(self.oids)
        parts = (
            paths, keys, oids, _packed(self.lengths), bytes(self.troubles),
            _packed(self.defined_counts), _packed(self.mentioned_counts),
        )  # fmt: skip
        sizes = [len(paths), len(keys), len(oids)]
        head = _HEAD.pack(
            _MAGIC, len(self.paths), *sizes, len(self.defined), len(self.mentioned), 0, 0
        )
        with open(directory / SECTIONS, "wb") as file:
            file.write(head)
            for part in (*parts, self.defined, self.mentioned):
                file.write(part)

    @classmethod
    def load(cls, directory: Path) -> Sections:
        return cls.parse((directory / SECTIONS).read_bytes())

    @classmethod
    def parse(cls, raw: bytes) -> Sections:
        magic, count, n_paths, n_keys, n_oids, n_defined, n_mentioned, _, _ = _HEAD.unpack_from(raw)
        if magic != _MAGIC:
            raise ValueError("not a table of sections")
        new = cls()
        at = _HEAD.size

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return raw[at - size : at]

        paths, keys, oids = take(n_paths), take(n_keys), take(n_oids)
        if count:
            new.paths, new.keys = paths.split(b"\0"), keys.decode().split("\0")
            width = n_oids // count
            new.oids = [oids[i : i + width] for i in range(0, n_oids, width)]
        new.lengths = _unpacked(take(20 * count))
        new.troubles = bytearray(take(count))
        new.defined_counts = _unpacked(take(4 * count))
        new.mentioned_counts = _unpacked(take(4 * count))
        new.defined, new.mentioned = take(n_defined), take(n_mentioned)
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
    base_directory: Path, base: Sections, edits: Mapping[bytes, Section | None], target: Path
) -> Sections:
    """Write into `target` the snapshot that differs from `base` by `edits`; None removes a path."""
    new = Sections()
    outs = [os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for name in FILES]
    ins = [os.open(base_directory / name, os.O_RDONLY) for name in FILES]
    defined: list[bytes] = []
    mentioned: list[bytes] = []
    try:
        for start, end, path, section in _runs(base, edits):
            if end > start:
                names = new.extend(base, start, end)
                defined.append(names[0])
                mentioned.append(names[1])
                for file in range(5):
                    offsets = base.offsets(file)
                    _copy(ins[file], outs[file], offsets[start], offsets[end] - offsets[start])
            if section is not None:
                new.append(path, section)
                defined.append(section.defined)
                mentioned.append(section.mentioned)
                for out, chunk in zip(outs, section.chunks, strict=True):
                    write_all(out, chunk)
    finally:
        for fd in (*outs, *ins):
            os.close(fd)
    new.defined, new.mentioned = b"".join(defined), b"".join(mentioned)
    new.save(target)
    return new


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
    chunks = []
    for file, name in enumerate(FILES):
        start, end = table.byte_range(row, file)
        with open(directory / name, "rb") as opened:
            opened.seek(start)
            chunks.append(opened.read(end - start))
    d, m = table.defined_starts(), table.mentioned_starts()
    return Section(
        table.oids[row],
        table.keys[row],
        (chunks[0], chunks[1], chunks[2], chunks[3], chunks[4]),
        table.defined[4 * d[row] : 4 * d[row + 1]],
        table.mentioned[4 * m[row] : 4 * m[row + 1]],
        bool(table.troubles[row]),
    )
