"""A whole snapshot, opened to be asked: symbols, places and edges by id."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, json

from substrate.graph.layout import FILES
from substrate.graph.records import FileRecord, RegionRecord, SymbolRecord, path_id
from substrate.graph.sections import Sections

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
    def callers(self) -> dict[str, list[Call]]:
        """Trusted edges by what they call."""
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            if call.to_symbol_id and call.confidence >= TRUSTED:
                found.setdefault(call.to_symbol_id, []).append(call)
        return found

    @cached_property
    def importers(self) -> dict[str, list[Imported]]:
        found: dict[str, list[Imported]] = {}
        for edge in self.imports:
            if edge.to_path_id:
                found.setdefault(edge.to_path_id, []).append(edge)
        return found

    @cached_property
    def modules(self) -> dict[str, SymbolRecord]:
        """The symbol that stands for a file, by path id."""
        return {s.path_id: s for s in self.symbols.values() if s.kind == "module"}

    def path_of(self, symbol: SymbolRecord) -> str:
        return self.files[symbol.path_id].path

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

    @cached_property
    def _raw_paths(self) -> dict[str, bytes]:
        return {path_id(path): path for path in self.sections.paths}

    def raw_path(self, path_id_: str) -> bytes:
        """The path's bytes: its text may be an encoding of them."""
        return self._raw_paths[path_id_]

    def places(self, path_id_: str) -> dict[str, Place]:
        """Region id -> where it is, for one path."""
        if path_id_ not in self._places:
            text = self.files[path_id_].path
            regions = self.regions_at(self.raw_path(path_id_))
            self._places[path_id_] = {
                k: Place(text, r.start_line, r.end_line) for k, r in regions.items()
            }
        return self._places[path_id_]
