"""A whole tree at once: facts and lines in parallel, then edges in parallel.

1  children parse and write the lines that need nothing but the file itself
2  the parent joins the table of who defines what, and forks again
3  children, who inherit that, resolve imports and calls
"""

from __future__ import annotations

import gc
import os
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from substrate.graph.cache import DAMAGED, Cache, packer, row_key
from substrate.graph.extract import extract
from substrate.graph.fact_source import (
    Batch,
    Unpacker,
    Wanted,
    batches,
    failed_facts,
)
from substrate.graph.facts import Links, Outline, encode_facts, outline_of
from substrate.graph.layout import FILES
from substrate.graph.resolve.edges import EdgeMaker, Edges
from substrate.graph.resolve.names import Names
from substrate.graph.resolve.world import TreeWorld
from substrate.graph.section import Section, static_section
from substrate.graph.sections import Sections
from substrate.objects.repository import Repository, TreeEntry
from substrate.system.worker_pool import cores, map_forked

Progress = Callable[[str, int, int], None]

#: Below this many files children cost more than they bring.
_ALONE = 60
_EDGE_BATCH = 250
_ROWS_AT_ONCE = 1000
#: The facts of all rows, while edges are made: in a file, because memory would grow with the tree.
_KEPT = "facts.tmp"


class DamagedCacheError(Exception):
    """A row of the cache is not as it was written."""


class _Read(NamedTuple):
    """What a child says of a batch, path by path. Nothing at all: a row of it was damaged."""

    sections: list[Section]
    packed: list[bytes]
    new: list[bool]


class ColdIndex:
    """Writes the five files and the table of sections into a directory."""

    def __init__(self, repository: Repository, cache: Cache, target: Path) -> None:
        self._repository = repository
        self._cache = cache
        self._target = target
        self._sections = Sections()
        #: Where the facts of each row begin in the file that holds them for the edges.
        self._starts = array("Q", [0])
        self.counts = dict.fromkeys(("files", "symbols", "regions", "imports", "calls"), 0)

    def run(self, entries: list[TreeEntry], progress: Progress) -> Sections:
        workers = cores() if len(entries) > _ALONE else 1
        collects = gc.isenabled()
        gc.disable()  # hundreds of thousands of values, and no cycle among them
        kept = self._target / _KEPT
        try:
            with open(kept, "w+b") as facts:
                self._read_files(entries, workers, facts, progress)
                facts.flush()
                self._repository.close()  # git keeps much of what it read at hand
                self._make_edges(workers, facts.fileno(), progress)
        finally:
            kept.unlink(missing_ok=True)
            if collects:
                gc.enable()
        self._sections.save(self._target)
        self.counts["troubles"] = sum(self._sections.troubles)
        return self._sections

    def _read_files(
        self, entries: list[TreeEntry], workers: int, facts: IO[bytes], progress: Progress
    ) -> None:
        source = batches(
            entries, self._cache, self._repository,
            lambda done: progress("reading files", done, len(entries)),
        )  # fmt: skip
        defined: list[bytes] = []
        mentioned: list[bytes] = []
        rows: list[tuple[bytes, bytes]] = []
        with ExitStack() as opened:
            files = [opened.enter_context(open(self._target / n, "wb")) for n in FILES[:3]]
            for read in map_forked(_read_batch, source, workers=workers, rescue=_rescue):
                if not read.sections:
                    raise DamagedCacheError
                for section, packed, new in zip(*read, strict=True):
                    self._sections.append(entries[len(self._sections)].path, section)
                    defined.append(section.defined)
                    mentioned.append(section.mentioned)
                    if new:
                        rows.append((row_key(section.oid, section.key), packed))
                    self._starts.append(self._starts[-1] + len(packed))
                facts.write(b"".join(read.packed))
                for at, file in enumerate(files):
                    data = b"".join([section.chunks[at] for section in read.sections])
                    self.counts[_COUNTED[at]] += data.count(b"\n")
                    file.write(data)
                if len(rows) >= _ROWS_AT_ONCE:
                    self._cache.put_packed(rows)
                    rows = []
        self._cache.put_packed(rows)
        self._sections.defined, self._sections.mentioned = b"".join(defined), b"".join(mentioned)

    def _make_edges(self, workers: int, facts: int, progress: Progress) -> None:
        unpacker, starts, paths = Unpacker(), self._starts, self._sections.paths

        def packed(row: int) -> bytes:
            return os.pread(facts, starts[row + 1] - starts[row], starts[row])

        #: Of the batch: neighbours import each other most.
        near: dict[int, Links] = {}

        def outline_at(row: int) -> Outline | None:
            return outline_of(near[row]) if row in near else unpacker.outline(packed(row))

        maker = EdgeMaker(Names(TreeWorld(self._sections, outline_at)))

        def edges_of(start: int) -> tuple[Edges, list[tuple[int, int, int]]]:
            rows = range(start, min(start + _EDGE_BATCH, len(paths)))
            near.clear()
            near.update((row, unpacker.links(packed(row))) for row in rows)
            made = maker.edges_of((paths[row], links) for row, links in near.items())
            joined = Edges(*(b"".join(part) for part in zip(*made, strict=True)))
            return joined, [(len(e.imports), len(e.calls), len(e.called) // 4) for e in made]

        firsts = range(0, len(paths), _EDGE_BATCH)
        lengths = self._sections.lengths
        called: list[bytes] = []
        row = 0
        with (
            open(self._target / FILES[3], "wb") as imports_file,
            open(self._target / FILES[4], "wb") as calls_file,
        ):
            for edges, sizes in map_forked(edges_of, firsts, workers=workers):
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
    # One kind of work after the other: its code stays in the processor's caches.
    unpack, compress = Unpacker().facts, packer().compress
    try:
        facts = [
            unpack(known) if known is not None else extract(one.key, data or b"")
            for one, known, data in batch
        ]
    except DAMAGED:
        return _Read([], [], [])
    read = _Read([], [], [known is None for _, known, _ in batch])
    for (one, _, _), said in zip(batch, facts, strict=True):
        read.sections.append(static_section(one.path, one.oid, one.key, said))
    for (_, known, _), said in zip(batch, facts, strict=True):
        read.packed.append(known if known is not None else compress(encode_facts(said)))
    return read


def _rescue(batch: Batch) -> _Read:
    """A child died on this batch: file by file, each in a child of its own."""
    if len(batch) == 1:
        one, _, data = batch[0]
        return _given_up(one, data or b"")
    parts = map_forked(_read_batch, [[item] for item in batch], workers=2, rescue=_rescue)
    joined = _Read([], [], [])
    for part in parts:
        if not part.sections:
            return part
        joined.sections.extend(part.sections)
        joined.packed.extend(part.packed)
        joined.new.extend(part.new)
    return joined


def _given_up(one: Wanted, data: bytes) -> _Read:
    facts = failed_facts(data)
    section = static_section(one.path, one.oid, one.key, facts)
    packed = packer().compress(encode_facts(facts))
    # Remembered, so that no later command dies on it.
    return _Read([section], [packed], [True])
