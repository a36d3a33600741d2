"""Index a whole tree: facts and lines in parallel, then edges in parallel.

1  child processes parse files and write the lines that depend on one file only
2  the parent joins the table of definitions, and forks again
3  child processes inherit that table, and resolve imports and calls
"""

from __future__ import annotations

import gc
import os
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from pickle import PickleBuffer
from typing import IO, NamedTuple

from substrate.graph.index.full_index_worker import BatchRead, Handed, read_batch, rescue
from substrate.graph.index.graph_paths import FILES
from substrate.graph.index.splice import Sections
from substrate.graph.parse import Cache, Links, Outline, Unpacker, batches, outline_of, row_key
from substrate.graph.resolve import EdgeMaker, Names, TreeView
from substrate.objects.git import Repository, TreeEntry
from substrate.system.files import write_all
from substrate.system.process import map_forked, processors

Progress = Callable[[str, int, int], None]

#: Below this many files child processes cost more than they save.
_ALONE = 60
_EDGE_BATCH = 250
_ROWS_AT_ONCE = 1000
#: The facts of all rows while edges are made: in a file, because a large tree needs much memory.
_KEPT = "facts.tmp"


class DamagedCacheError(Exception):
    """A row of the cache is damaged."""


class _Made(NamedTuple):
    """A child's result for a run of paths: lines of both kinds of edges, and the called ids."""

    imports: Handed
    calls: Handed
    called: bytes
    #: For each path: lengths of the lines, number of called ids, checksums of the lines.
    sizes: list[tuple[int, int, int, int, int]]
    counts: list[tuple[int, int]]


class ColdIndex:
    """Writes the five files and the table of sections into a directory."""

    def __init__(self, repository: Repository, cache: Cache, target: Path) -> None:
        self._repository = repository
        self._cache = cache
        self._target = target
        self._sections = Sections()
        #: Rows to write to the cache next.
        self._rows: list[tuple[bytes, bytes]] = []
        #: The offset of each row's facts in the temporary file for the edges.
        self._starts = array("Q", [0])
        self.counts = dict.fromkeys(("files", "symbols", "regions", "imports", "calls"), 0)

    def run(self, entries: list[TreeEntry], progress: Progress) -> Sections:
        workers = processors() if len(entries) > _ALONE else 1
        collects = gc.isenabled()
        gc.disable()  # hundreds of thousands of values, without any cycle
        kept = self._target / _KEPT
        try:
            with open(kept, "w+b") as facts:
                self._read_files(entries, workers, facts, progress)
                facts.flush()
                self._repository.close()  # git keeps much of what it read in memory
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
        names: list[tuple[bytes, bytes, bytes]] = []
        with ExitStack() as opened:
            files = [opened.enter_context(open(self._target / n, "wb")) for n in FILES[:3]]
            for read in map_forked(read_batch, source, workers=workers, rescue=rescue):
                if not read.sizes:
                    raise DamagedCacheError
                names.append(self._sections.extend(read.table, 0, len(read.table)))
                self._rows += self._stored(read)
                write_all(facts.fileno(), memoryview(read.packed))
                for at, file in enumerate(files):
                    write_all(file.fileno(), memoryview(read.lines[at]))
                for what, count in zip(("files", "symbols", "regions"), read.counts, strict=True):
                    self.counts[what] += count
                if len(self._rows) >= _ROWS_AT_ONCE:
                    self._put_rows()
        self._sections.defined = b"".join([defined for defined, _, _ in names])
        self._sections.mentioned = b"".join([mentioned for _, mentioned, _ in names])

    def _put_rows(self) -> None:
        self._cache.put_packed(self._rows)
        self._rows = []

    def _stored(self, read: BatchRead) -> Iterator[tuple[bytes, bytes]]:
        """Note the offset of each row's facts; yield the rows that the cache does not have."""
        packed, at, table = memoryview(read.packed), 0, read.table
        for row, (size, new) in enumerate(zip(read.sizes, read.new, strict=True)):
            self._starts.append(self._starts[-1] + size)
            if new:
                yield row_key(table.oids[row], table.keys[row]), bytes(packed[at : at + size])
            at += size

    def _make_edges(self, workers: int, facts: int, progress: Progress) -> None:
        unpacker, starts, paths = Unpacker(), self._starts, self._sections.paths

        def packed(row: int) -> bytes:
            return os.pread(facts, starts[row + 1] - starts[row], starts[row])

        #: The facts of the current batch: neighbouring files import each other most.
        near: dict[int, Links] = {}

        def outline_at(row: int) -> Outline | None:
            return outline_of(near[row]) if row in near else unpacker.outline(packed(row))

        maker = EdgeMaker(Names(TreeView(self._sections, outline_at)))

        def edges_of(start: int) -> _Made:
            rows = range(start, min(start + _EDGE_BATCH, len(paths)))
            first = starts[rows.start]
            together = memoryview(os.pread(facts, starts[rows.stop] - first, first))
            near.clear()
            for row in rows:
                stored = together[starts[row] - first : starts[row + 1] - first]
                near[row] = unpacker.links(stored)
            made = maker.edges_of((paths[row], links) for row, links in near.items())
            return _Made(
                PickleBuffer(b"".join([one.imports for one in made])),
                PickleBuffer(b"".join([one.calls for one in made])),
                b"".join([one.called for one in made]),
                [
                    (
                        len(e.imports),
                        len(e.calls),
                        len(e.called) // 4,
                        zlib.crc32(e.imports),
                        zlib.crc32(e.calls),
                    )
                    for e in made
                ],
                [one.counts for one in made],
            )

        firsts = range(0, len(paths), _EDGE_BATCH)
        lengths, sums = self._sections.lengths, self._sections.sums
        called: list[bytes] = []
        row = 0
        with (
            open(self._target / FILES[3], "wb") as imports_file,
            open(self._target / FILES[4], "wb") as calls_file,
        ):
            for made in map_forked(edges_of, firsts, workers=workers):
                self._put_rows()  # the last rows: written now, so that the children start first
                write_all(imports_file.fileno(), memoryview(made.imports))
                write_all(calls_file.fileno(), memoryview(made.calls))
                called.append(made.called)
                self.counts["imports"] += sum(imports for imports, _ in made.counts)
                self.counts["calls"] += sum(calls for _, calls in made.counts)
                for n_imports, n_calls, n_called, *crcs in made.sizes:
                    lengths[5 * row + 3], lengths[5 * row + 4] = n_imports, n_calls
                    sums[5 * row + 3], sums[5 * row + 4] = crcs
                    self._sections.called_counts[row] = n_called
                    row += 1
                progress("linking files", row, len(paths))
        self._sections.called = b"".join(called)
