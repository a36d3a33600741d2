"""A whole tree at once: facts and lines in parallel, then edges in parallel.

1  children parse and write the lines that need nothing but the file itself
2  the parent joins what the files define, and forks again
3  children, who inherit that, resolve imports and calls
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec import msgpack

from substrate.graph.cache import DAMAGED, Cache, Packer, row_key
from substrate.graph.extract import extract
from substrate.graph.fact_source import (
    Batch,
    Unpacker,
    Wanted,
    batches,
    failed_facts,
    outline_of,
)
from substrate.graph.facts import Outline, encode_facts
from substrate.graph.layout import FILES
from substrate.graph.resolve.edges import EdgeMaker, Edges
from substrate.graph.resolve.names import Names
from substrate.graph.resolve.world import MemoryWorld
from substrate.graph.section import Section, static_section
from substrate.graph.sections import Sections
from substrate.objects.repository import Repository, TreeEntry
from substrate.system.worker_pool import cores, map_forked

Progress = Callable[[str, int, int], None]

#: Below this many files children cost more than they bring.
_ALONE = 60
_EDGE_BATCH = 250
_ROWS_AT_ONCE = 4000


class DamagedCacheError(Exception):
    """A row of the cache is not as it was written."""


class _Read(NamedTuple):
    """What a child says of a batch; per path where it says "list". No outlines: damaged rows."""

    sections: list[Section]
    packed: list[bytes]
    new: list[bool]
    outlines: bytes


class ColdIndex:
    """Writes the five files and the table of sections into a directory."""

    def __init__(self, repository: Repository, cache: Cache, target: Path) -> None:
        self._repository = repository
        self._cache = cache
        self._target = target
        self._sections = Sections()
        self._wanted: list[Wanted] = []
        self._packed: list[bytes] = []
        self._outlines: dict[bytes, Outline | None] = {}
        self.counts = dict.fromkeys(("files", "symbols", "regions", "imports", "calls"), 0)

    def run(self, entries: list[TreeEntry], progress: Progress) -> Sections:
        workers = cores() if len(entries) > _ALONE else 1
        collects = gc.isenabled()
        gc.disable()  # hundreds of thousands of values, and no cycle among them
        try:
            self._read_files(entries, workers, progress)
            self._make_edges(workers, progress)
        finally:
            if collects:
                gc.enable()
        self._sections.save(self._target)
        self.counts["troubles"] = sum(self._sections.troubles)
        return self._sections

    def _read_files(self, entries: list[TreeEntry], workers: int, progress: Progress) -> None:
        source = batches(
            entries, self._cache, self._repository,
            lambda done: progress("reading files", done, len(entries)),
        )  # fmt: skip
        defined: list[bytes] = []
        mentioned: list[bytes] = []
        rows: list[tuple[bytes, bytes]] = []
        decode = msgpack.Decoder(list[Outline | None]).decode
        with ExitStack() as opened:
            files = [opened.enter_context(open(self._target / n, "wb")) for n in FILES[:3]]
            for read in map_forked(_read_batch, source, workers=workers, rescue=_rescue):
                if not read.outlines:
                    raise DamagedCacheError
                outlines = decode(read.outlines)
                for section, packed, new, outline in zip(
                    read.sections, read.packed, read.new, outlines, strict=True
                ):
                    one = Wanted(self._path_of(entries), section.oid, section.key)
                    self._wanted.append(one)
                    self._packed.append(packed)
                    self._outlines[one.path] = outline
                    self._sections.append(one.path, section)
                    defined.append(section.defined)
                    mentioned.append(section.mentioned)
                    if new:
                        rows.append((row_key(one.oid, one.key), packed))
                for at, file in enumerate(files):
                    data = b"".join([section.chunks[at] for section in read.sections])
                    self.counts[_COUNTED[at]] += data.count(b"\n")
                    file.write(data)
                if len(rows) >= _ROWS_AT_ONCE:
                    self._cache.put_packed(rows)
                    rows = []
        self._cache.put_packed(rows)
        self._sections.defined, self._sections.mentioned = b"".join(defined), b"".join(mentioned)

    def _path_of(self, entries: list[TreeEntry]) -> bytes:
        return entries[len(self._wanted)].path

    def _make_edges(self, workers: int, progress: Progress) -> None:
        maker = EdgeMaker(Names(MemoryWorld(self._outlines)))
        unpack = Unpacker().links
        paths, packed = self._sections.paths, self._packed

        def edges_of(start: int) -> tuple[Edges, list[tuple[int, int, int]]]:
            rows = range(start, min(start + _EDGE_BATCH, len(paths)))
            made = [maker.edges(paths[row], unpack(packed[row])) for row in rows]
            joined = Edges(*(b"".join(part) for part in zip(*made, strict=True)))
            return joined, [(len(e.imports), len(e.calls), len(e.called) // 4) for e in made]

        starts = range(0, len(paths), _EDGE_BATCH)
        lengths = self._sections.lengths
        called: list[bytes] = []
        row = 0
        with (
            open(self._target / FILES[3], "wb") as imports_file,
            open(self._target / FILES[4], "wb") as calls_file,
        ):
            for edges, sizes in map_forked(edges_of, starts, workers=workers):
                imports_file.write(edges.imports)
                calls_file.write(edges.calls)
                called.append(edges.called)
                self.counts["imports"] += edges.imports.count(b"\n")
                self.counts["calls"] += edges.calls.count(b"\n")
                for n_imports, n_calls, n_called in sizes:
                    lengths[5 * row + 3], lengths[5 * row + 4] = n_imports, n_calls
                    self._sections.called_counts[row] = n_called
                    row += 1
                progress("linking files", row, len(paths))
        self._sections.called = b"".join(called)


_COUNTED = ("files", "symbols", "regions")


def _read_batch(batch: Batch) -> _Read:
    packer, unpack = Packer(), Unpacker().facts
    read = _Read([], [], [], b"")
    outlines: list[Outline | None] = []
    for one, known, data in batch:
        if known is not None:
            try:
                facts, packed = unpack(known), known
            except DAMAGED:
                return _Read([], [], [], b"")
        else:
            assert data is not None
            facts = extract(one.key, data)
            packed = packer.compress(encode_facts(facts))
        read.sections.append(static_section(one.path, one.oid, one.key, facts))
        read.packed.append(packed)
        read.new.append(known is None)
        outlines.append(outline_of(facts))
    return read._replace(outlines=msgpack.encode(outlines))


def _rescue(batch: Batch) -> _Read:
    """A child died on this batch: file by file, each in a child of its own."""
    if len(batch) == 1:
        one, _, data = batch[0]
        return _given_up(one, data or b"")
    parts = map_forked(_read_batch, [[item] for item in batch], workers=2, rescue=_rescue)
    joined = _Read([], [], [], b"")
    outlines: list[Outline | None] = []
    for part in parts:
        if not part.outlines:
            return part
        joined.sections.extend(part.sections)
        joined.packed.extend(part.packed)
        joined.new.extend(part.new)
        outlines += msgpack.decode(part.outlines, type=list[Outline | None])
    return joined._replace(outlines=msgpack.encode(outlines))


def _given_up(one: Wanted, data: bytes) -> _Read:
    facts = failed_facts(data)
    section = static_section(one.path, one.oid, one.key, facts)
    packed = Packer().compress(encode_facts(facts))
    # Remembered, so that no later command dies on it.
    return _Read([section], [packed], [True], msgpack.encode([None]))
