"""A whole snapshot, opened to be asked: symbols, places and edges by id."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, json

from substrate.graph.facts import name_hash
from substrate.graph.layout import FILES
from substrate.graph.records import FileRecord, RegionRecord, SymbolRecord, path_id
from substrate.graph.sections import Sections
from substrate.model.paths import display

#: Edges that are followed from a change to what it can break.
TRUSTED = 0.8


class Call(Struct, gc=False):
    """The fields of a call edge that questions need; the rest is skipped when it is read."""

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
    """Reads only what it is asked for, and keeps it."""

    def __init__(self, commit: bytes, directory: Path) -> None:
        self.commit = commit
        self.directory = directory
        self._places: dict[str, dict[str, Place]] = {}
        self._symbols: dict[int, dict[str, SymbolRecord]] = {}
        self._row_calls: dict[int, list[Call]] = {}

    @cached_property
    def sections(self) -> Sections:
        return Sections.load(self.directory)

    def _bytes(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

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
        """The symbol that stands for a file, by path id."""
        return {s.path_id: s for s in self.symbols.values() if s.kind == "module"}

    # -- a few of them, without reading the rest ------------------------------------------------

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The beginning of a path id, which every id of that path begins with -> its row."""
        return {path_id(path)[:10]: row for row, path in enumerate(self.sections.paths)}

    def _row_symbols(self, row: int) -> dict[str, SymbolRecord]:
        if row not in self._symbols:
            found = self.symbols_at(self.sections.paths[row])
            self._symbols[row] = {symbol.symbol_id: symbol for symbol in found}
        return self._symbols[row]

    def symbol(self, symbol_id: str) -> SymbolRecord | None:
        row = self._rows.get(symbol_id[:10])
        return self._row_symbols(row).get(symbol_id) if row is not None else None

    def callers_of(self, symbol_id: str) -> list[Call]:
        """The trusted edges to a symbol, in the order of paths."""
        found = []
        for row in self.sections.rows_calling(name_hash(symbol_id)):
            if row not in self._row_calls:
                lines = self.section_lines(self.sections.paths[row], 4)
                self._row_calls[row] = _CALL.decode_lines(lines)
            found += [
                call
                for call in self._row_calls[row]
                if call.to_symbol_id == symbol_id and call.confidence >= TRUSTED
            ]
        return found

    def importers_of(self, symbol: SymbolRecord) -> list[tuple[SymbolRecord, Imported]]:
        """The modules that take the symbol by its name, and the edge that says so."""
        found = []
        for row in sorted(self.sections.rows_mentioning({name_hash(symbol.name)})):
            path = self.sections.paths[row]
            for edge in _IMPORT.decode_lines(self.section_lines(path, 3)):
                if edge.to_path_id == symbol.path_id and symbol.name in edge.names:
                    module = next(iter(self._row_symbols(row).values()))
                    found.append((module, edge))
        return found

    def path_of(self, symbol: SymbolRecord) -> str:
        return display(self.raw_path(symbol.path_id))

    def raw_path(self, path_id_: str) -> bytes:
        """The path's bytes: its text may be an encoding of them."""
        return self.sections.paths[self._rows[path_id_[:10]]]

    def section_lines(self, path: bytes, file: int) -> bytes:
        """One path's lines of one of the five files."""
        row = self.sections.find(path)
        if row < 0:
            return b""
        start, end = self.sections.byte_range(row, file)
        with open(self.directory / FILES[file], "rb") as opened:
            opened.seek(start)
            return opened.read(end - start)

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
