"""A whole tree at once: facts and lines in parallel, then edges in parallel.

1  children parse and write the lines that need nothing but the file itself
2  the parent joins the table of who defines what, and forks again
3  children, who inherit that, resolve imports and calls
"""

from __future__ import annotations

import gc
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from pickle import PickleBuffer
from typing import IO, NamedTuple

from substrate.graph.cache import Cache, row_key
from substrate.graph.cold_batch import BatchRead, Handed, read_batch, rescue
from substrate.graph.fact_source import Unpacker, batches
from substrate.graph.facts import Links, Outline, outline_of
from substrate.graph.layout import FILES
from substrate.graph.resolve.edges import EdgeMaker
from substrate.graph.resolve.names import Names
from substrate.graph.resolve.world import TreeWorld
from substrate.graph.sections import Sections
from substrate.objects.repository import Repository, TreeEntry
from substrate.system.files import write_all
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


class _Made(NamedTuple):
    """What a child says of a run of paths: lines of both kinds of edges, and whom they call."""

    imports: Handed
    calls: Handed
    called: bytes
    #: Path by path.
    sizes: list[tuple[int, int, int]]
    counts: list[tuple[int, int]]


class ColdIndex:
    """Writes the five files and the table of sections into a directory."""

    def __init__(self, repository: Repository, cache: Cache, target: Path) -> None:
        self._repository = repository
        self._cache = cache
        self._target = target
        self._sections = Sections()
        #: What the cache is to be given next.
        self._rows: list[tuple[bytes, bytes]] = []
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
        """Where the facts begin is noted; rows that the cache is still to be given are returned."""
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

        #: Of the batch: neighbours import each other most.
        near: dict[int, Links] = {}

        def outline_at(row: int) -> Outline | None:
            return outline_of(near[row]) if row in near else unpacker.outline(packed(row))

        maker = EdgeMaker(Names(TreeWorld(self._sections, outline_at)))

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
                [(len(e.imports), len(e.calls), len(e.called) // 4) for e in made],
                [one.counts for one in made],
            )

        firsts = range(0, len(paths), _EDGE_BATCH)
        lengths = self._sections.lengths
        called: list[bytes] = []
        row = 0
        with (
            open(self._target / FILES[3], "wb") as imports_file,
            open(self._target / FILES[4], "wb") as calls_file,
        ):
            for made in map_forked(edges_of, firsts, workers=workers):
                self._put_rows()  # the last ones: only now, so that the children had not to wait
                write_all(imports_file.fileno(), memoryview(made.imports))
                write_all(calls_file.fileno(), memoryview(made.calls))
                called.append(made.called)
                self.counts["imports"] += sum(imports for imports, _ in made.counts)
                self.counts["calls"] += sum(calls for _, calls in made.counts)
                for n_imports, n_calls, n_called in made.sizes:
                    lengths[5 * row + 3], lengths[5 * row + 4] = n_imports, n_calls
                    self._sections.called_counts[row] = n_called
                    row += 1
                progress("linking files", row, len(paths))
        self._sections.called = b"".join(called)
