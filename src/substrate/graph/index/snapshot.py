"""A snapshot, opened for queries: symbols, places and edges by id."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, json

from substrate.graph.checked_read import read_range, read_whole
from substrate.graph.index.graph_paths import FILES
from substrate.graph.index.records import FileRecord, RegionRecord, SymbolRecord, path_id
from substrate.graph.index.splice import Sections
from substrate.graph.parse import name_hash
from substrate.model import display

#: The least confidence of edges that lead from a change to what it can break.
TRUSTED = 0.8


class Call(Struct, gc=False):
    """The fields of a call edge that queries need; the others are not decoded."""

    from_symbol_id: str
    call_region_id: str
    call_type: str
    confidence: float
    to_symbol_id: str = ""
    to_external_ref: str = ""


class Imported(Struct, gc=False):
    from_path_id: str
    import_region_id: str
    to_path_id: str = ""
    to_external_module: str = ""
    names: list[str] = []


_FILE = json.Decoder(FileRecord)
_SYMBOL = json.Decoder(SymbolRecord)
_REGION = json.Decoder(RegionRecord)
_CALL = json.Decoder(Call)
_IMPORT = json.Decoder(Imported)


class Place(NamedTuple):
    path: str
    start_line: int
    end_line: int


class Snapshot:
    """Reads only what queries need, and caches it."""

    def __init__(self, commit: bytes, directory: Path) -> None:
        self.commit = commit
        self.directory = directory
        self._places: dict[str, dict[str, Place]] = {}
        self._symbols: dict[int, dict[str, SymbolRecord]] = {}
        self._row_calls: dict[int, dict[str, list[Call]]] = {}
        self._row_imports: dict[int, list[Imported]] = {}
        self._by_fqname: dict[int, dict[str, SymbolRecord]] = {}

    @cached_property
    def sections(self) -> Sections:
        return Sections.load(self.directory)

    def _bytes(self, name: str) -> bytes:
        return read_whole(self.directory, self.sections, FILES.index(name))

    @cached_property
    def files(self) -> dict[str, FileRecord]:
        """By path id."""
        rows = _FILE.decode_lines(self._bytes("files.jsonl"))
        return {row.path_id: row for row in rows}

    @cached_property
    def symbols(self) -> dict[str, SymbolRecord]:
        rows = _SYMBOL.decode_lines(self._bytes("symbols.jsonl"))
        return {row.symbol_id: row for row in rows}

    @cached_property
    def calls(self) -> list[Call]:
        return _CALL.decode_lines(self._bytes("edges.calls.jsonl"))

    @cached_property
    def imports(self) -> list[Imported]:
        return _IMPORT.decode_lines(self._bytes("edges.imports.jsonl"))

    @cached_property
    def modules(self) -> dict[str, SymbolRecord]:
        """The module symbol of each file, by path id."""
        return {s.path_id: s for s in self.symbols.values() if s.kind == "module"}

    # -- a few symbols, without reading the rest ------------------------------------------------

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The prefix of a path id, which all ids of that path share -> its row."""
        return {path_id(path)[:10]: row for row, path in enumerate(self.sections.paths)}

    def _row_symbols(self, row: int) -> dict[str, SymbolRecord]:
        if row not in self._symbols:
            found = self.symbols_at(self.sections.paths[row])
            self._symbols[row] = {symbol.symbol_id: symbol for symbol in found}
        return self._symbols[row]

    def symbol(self, symbol_id: str) -> SymbolRecord | None:
        row = self._rows.get(symbol_id[:10])
        return self._row_symbols(row).get(symbol_id) if row is not None else None

    def owner_of(self, symbol: SymbolRecord) -> SymbolRecord | None:
        """The symbol around this one, unless that is the module."""
        row = self._rows[symbol.path_id[:10]]
        if row not in self._by_fqname:
            by_name: dict[str, SymbolRecord] = {}
            for other in self._row_symbols(row).values():
                if other.kind != "module":
                    by_name.setdefault(other.fqname, other)
            self._by_fqname[row] = by_name
        above = symbol.fqname.removesuffix(symbol.name).rstrip(".:")
        return self._by_fqname[row].get(above)

    def callers_of(self, symbol_id: str) -> list[Call]:
        """The trusted edges to a symbol, in the order of paths."""
        found: list[Call] = []
        for row in self.sections.rows_calling(name_hash(symbol_id)):
            found += self._trusted_calls(row).get(symbol_id, ())
        return found

    def _trusted_calls(self, row: int) -> dict[str, list[Call]]:
        """A path's trusted edges by the symbol they point to."""
        if row not in self._row_calls:
            by_target: dict[str, list[Call]] = {}
            for call in _CALL.decode_lines(self.section_lines(self.sections.paths[row], 4)):
                if call.to_symbol_id and call.confidence >= TRUSTED:
                    by_target.setdefault(call.to_symbol_id, []).append(call)
            self._row_calls[row] = by_target
        return self._row_calls[row]

    def importers_of(self, symbol: SymbolRecord) -> list[tuple[SymbolRecord, Imported]]:
        """The modules that import the symbol by its name, each with the import edge."""
        found = []
        for row in self.sections.rows_mentioning_one(name_hash(symbol.name)):
            for edge in self._imports_of(row):
                if edge.to_path_id == symbol.path_id and symbol.name in edge.names:
                    module = next(iter(self._row_symbols(row).values()))
                    found.append((module, edge))
        return found

    def _imports_of(self, row: int) -> list[Imported]:
        if row not in self._row_imports:
            lines = self.section_lines(self.sections.paths[row], 3)
            self._row_imports[row] = _IMPORT.decode_lines(lines)
        return self._row_imports[row]

    def path_of(self, symbol: SymbolRecord) -> str:
        return display(self.raw_path(symbol.path_id))

    def raw_path(self, path_id_: str) -> bytes:
        """The path's bytes: its text may be encoded."""
        return self.sections.paths[self._rows[path_id_[:10]]]

    def section_lines(self, path: bytes, file: int) -> bytes:
        """One path's lines of one of the five files."""
        row = self.sections.find(path)
        if row < 0:
            return b""
        return read_range(self.directory, self.sections, row, file)

    def symbols_at(self, path: bytes) -> list[SymbolRecord]:
        return _SYMBOL.decode_lines(self.section_lines(path, 1))

    def regions_at(self, path: bytes) -> dict[str, RegionRecord]:
        rows = _REGION.decode_lines(self.section_lines(path, 2))
        return {row.region_id: row for row in rows}

    def places(self, path_id_: str) -> dict[str, Place]:
        """Region id -> where it is, for one path."""
        if path_id_ not in self._places:
            raw = self.raw_path(path_id_)
            text, regions = display(raw), self.regions_at(raw)
            self._places[path_id_] = {
                k: Place(text, r.start_line, r.end_line) for k, r in regions.items()
            }
        return self._places[path_id_]
