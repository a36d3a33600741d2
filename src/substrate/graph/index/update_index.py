"""Index the next commit: only what changed, and the edges that point to it.

A file's edges depend on other files only through names, and its mentioned names are in the table
of sections. `affected` finds the files for which a name may have another meaning now. Their edges
are made again; the rest of the snapshot is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path

from substrate.graph.checked_read import read_range
from substrate.graph.index.affected import Affected, Both
from substrate.graph.index.path_section import Section, static_section
from substrate.graph.index.splice import Sections, read_section
from substrate.graph.parse import FactSource, Outline, Wanted, name_hash, wanted
from substrate.graph.resolve import (
    MANY,
    Definition,
    EdgeMaker,
    Edges,
    Names,
    Places,
    definitions_in,
)
from substrate.objects.git import TreeChange


class SplicedView:
    """The new tree as the old table plus the changes: looked up on demand, not loaded."""

    def __init__(self, base: Sections, changed: dict[bytes, Wanted | None], facts: FactSource):
        self._base = base
        self._changed = changed
        self._facts = facts
        self._places: Places | None = None
        self._redefined: dict[str, list[tuple[bytes, list[Definition]]]] | None = None

    def row(self, path: bytes) -> Wanted | None:
        if path in self._changed:
            return self._changed[path]
        row = self._base.find(path)
        return Wanted(path, self._base.oids[row], self._base.keys[row]) if row >= 0 else None

    def has(self, path: bytes) -> bool:
        return self.row(path) is not None

    def may_have_module(self, name: bytes) -> bool:
        return True  # an exact answer would require checking all names

    def outline(self, path: bytes) -> Outline | None:
        one = self.row(path)
        return self._facts.outline(one.oid, one.key) if one is not None else None

    def defining(self, name: str, directory: bytes | None = None) -> Iterator[Definition]:
        if self._redefined is None:
            self._redefined = self._changed_definitions()
        changed = sorted(
            (path, here)
            for path, here in self._redefined.get(name, ())
            if directory is None or path.rpartition(b"/")[0] == directory
        )
        # Read one by one: most callers stop at the second.
        both = merge(changed, self._unchanged(name, directory))
        for _, here in islice(both, MANY):
            yield from here

    def _unchanged(
        self, name: str, directory: bytes | None
    ) -> Iterator[tuple[bytes, list[Definition]]]:
        for row in self._base.rows_defining(name_hash(name), directory):
            path = self._base.paths[row]
            if path not in self._changed:
                here = definitions_in(path, self.outline(path), name)
                if here:
                    yield path, here

    def _changed_definitions(self) -> dict[str, list[tuple[bytes, list[Definition]]]]:
        """Name -> the definitions of that name in the changed files."""
        found: dict[str, list[tuple[bytes, list[Definition]]]] = {}
        for path in self._changed:
            outline = self.outline(path)
            here: dict[str, list[Definition]] = {}
            for index, symbol in enumerate(outline.symbols if outline is not None else ()):
                if index:
                    here.setdefault(symbol.name, []).append(Definition(path, index, symbol))
            for name, definitions in here.items():
                found.setdefault(name, []).append((path, definitions))
        return found

    def ending(self, suffix: bytes) -> list[bytes]:
        return self._all().ending(suffix)

    def inside(self, directory: bytes) -> list[bytes]:
        return self._all().inside(directory)

    def _all(self) -> Places:
        if self._places is None:
            gone = {path for path, one in self._changed.items() if one is None}
            new = [p for p, one in self._changed.items() if one and self._base.find(p) < 0]
            paths: Sequence[bytes] = self._base.paths
            if gone or new:
                paths = sorted([*(path for path in paths if path not in gone), *new])
            self._places = Places(paths)
        return self._places


class Update:
    """The edits that turn a neighbour's snapshot into that of the new commit."""

    def __init__(
        self, directory: Path, base: Sections, changes: list[TreeChange], facts: FactSource
    ) -> None:
        self._directory = directory
        self._base = base
        self._facts = facts
        self._changed: dict[bytes, Wanted | None] = {
            change.path: wanted(change.path, change.mode, change.oid) if change.oid else None
            for change in changes
        }
        self._view = SplicedView(base, self._changed, facts)
        self._before = SplicedView(base, {}, facts)
        #: Path -> the new section (None: removed) and the old one.
        self.edits: dict[bytes, Section | None] = {}
        self.replaced: list[tuple[bytes, Section | None]] = []

    @property
    def added(self) -> list[bytes]:
        return [p for p, one in self._changed.items() if one is not None and self._base.find(p) < 0]

    @property
    def gone(self) -> list[bytes]:
        return [p for p, one in self._changed.items() if one is None and self._base.find(p) >= 0]

    def run(self) -> None:
        maker = EdgeMaker(Names(self._view))
        self._facts.read_ahead(one for one in self._changed.values() if one is not None)
        for path, one in self._changed.items():
            old = self._base.find(path)
            before = read_section(self._directory, self._base, old) if old >= 0 else None
            after = self._section(maker, one) if one is not None else None
            if after != before:
                self._edit(path, before, after)
        for row in sorted(self.rows_to_resolve()):
            path = self._base.paths[row]
            if path in self._changed:
                continue
            facts = self._facts.get(self._base.oids[row], self._base.keys[row])
            edges = maker.edges(path, facts)
            if edges[:3] != self._edges(row):
                before = read_section(self._directory, self._base, row)
                self._edit(path, before, with_edges(before, edges))

    def _edges(self, row: int) -> tuple[bytes, bytes, bytes]:
        """The imports, calls and called symbols of a path in the old snapshot."""
        imports, calls = (read_range(self._directory, self._base, row, file) for file in (3, 4))
        return imports, calls, self._base.hashes(row, row + 1)[2]

    def _edit(self, path: bytes, before: Section | None, after: Section | None) -> None:
        self.edits[path] = after
        self.replaced.append((path, before))

    def _section(self, maker: EdgeMaker, one: Wanted) -> Section:
        facts = self._facts.get(one.oid, one.key)
        section = static_section(one.path, one.oid, one.key, facts)
        return with_edges(section, maker.edges(one.path, facts))

    def rows_to_resolve(self) -> set[int]:
        """Rows of the base whose edges may have another meaning now."""
        changed = [
            Both(path, self._before.outline(path), self._view.outline(path),
                 (self._base.find(path) < 0) != (one is None))
            for path, one in self._changed.items()
        ]  # fmt: skip
        return Affected(self._base, changed, self._before, self._view).rows()


def with_edges(section: Section, edges: Edges) -> Section:
    chunks = (*section.chunks[:3], edges.imports, edges.calls)
    return section._replace(chunks=chunks, called=edges.called)
