"""Import and call edges of one file, as lines."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET

from substrate.graph.index import (
    PREFIX_CHARS,
    CallEdge,
    ImportEdge,
    encode_lines,
    path_id,
    region_id,
    symbol_id,
)
from substrate.graph.parse import Facts, Import, Links, id_hashes, outline_of
from substrate.graph.resolve.resolve_calls import CallResolver
from substrate.graph.resolve.resolve_names import FileNames, Names, Target


class Edges(NamedTuple):
    """The lines of ``edges.imports.jsonl`` and ``edges.calls.jsonl``, and the called symbols."""

    imports: bytes
    calls: bytes
    #: Hashes of the symbols' ids: see `Section.called`.
    called: bytes
    #: How many imports, and how many calls.
    counts: tuple[int, int]


class EdgeMaker:
    """Makes the edges of many files, and caches the meanings of names."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._path_ids: dict[bytes, str] = {}

    def edges(self, path: bytes, facts: Facts | Links) -> Edges:
        """The edges that begin in one file."""
        return self.edges_of([(path, facts)])[0]

    def edges_of(self, files: Iterable[tuple[bytes, Facts | Links]]) -> list[Edges]:
        """The same for several: one kind of work at a time, for the CPU caches."""
        named = [(self._names.file_of(path, outline_of(facts)), facts) for path, facts in files]
        imports = [self._imports(file) if file is not None else [] for file, _ in named]
        calls = [self._calls(file, facts) if file is not None else [] for file, facts in named]
        return [
            Edges(
                encode_lines(import_edges), encode_lines(call_edges), _called(call_edges),
                (len(import_edges), len(call_edges)),
            )
            for import_edges, call_edges in zip(imports, calls, strict=True)
        ]  # fmt: skip

    def _imports(self, file: FileNames) -> list[ImportEdge]:
        records = []
        # The imports in the outline are the same, and names are bound to those objects.
        for found in file.outline.imports:
            region = region_id(file.path_id, found.span)
            names = [name for name, _ in found.names] or UNSET
            targets = self._targets(file, found)
            records += [
                ImportEdge(file.path_id, region, to_path_id=self._id(target), names=names)
                for target in targets
            ]
            if not targets:
                dots = "." * found.level if file.family == "python" else ""
                records.append(
                    ImportEdge(
                        file.path_id, region, to_external_module=dots + found.module, names=names
                    )
                )
        return records

    def _targets(self, file: FileNames, found: Import) -> list[bytes]:
        """The module's files, and those of submodules that are imported from it by name."""
        targets = list(self._names.module_of(file, found))
        if file.family == "python":
            for name, alias in found.names:
                bound = file.bound.get(alias)
                if name == "*" or bound is None or bound[0] is not found:
                    continue
                entity = self._names.binding(file, alias)
                for path in entity.module if entity is not None else ():
                    if path not in targets:
                        targets.append(path)
        return targets

    def _calls(self, file: FileNames, facts: Facts | Links) -> list[CallEdge]:
        resolve = CallResolver(self._names, file, facts).resolve
        # In one scope the same words have the same meaning.
        known: dict[tuple[int, str, str, str], Target] = {}
        records = []
        prefix, symbols = file.path_id[:PREFIX_CHARS], file.outline.symbols
        for call in facts.calls:
            scope, kind = call.scope, call.type
            key = (scope, call.receiver, call.name, kind)
            target = known.get(key)
            if target is None:
                target = known[key] = resolve(call)
            found = target.symbol
            records.append(
                CallEdge(
                    prefix + symbols[scope].key, prefix + call.span.name, kind, target.confidence,
                    UNSET if found is None else symbol_id(self._id(found.path), found.symbol),
                    target.external if found is None else UNSET,
                )
            )  # fmt: skip
        return records

    def _id(self, path: bytes) -> str:
        if path not in self._path_ids:
            self._path_ids[path] = path_id(path)
        return self._path_ids[path]


def _called(calls: list[CallEdge]) -> bytes:
    ids = {call.to_symbol_id for call in calls if call.to_symbol_id}  # many calls, few callees
    return array("I", sorted(id_hashes(ids))).tobytes()
