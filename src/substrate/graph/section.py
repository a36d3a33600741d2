"""One path's part of a snapshot: its lines in the five files, and the names it has and uses.

The first three files follow from the path and its facts alone. The two edge files also depend on
other files, and are made by `resolve`.
"""

from __future__ import annotations

import re
from array import array
from itertools import groupby
from typing import NamedTuple

from msgspec import UNSET

from substrate.graph import languages
from substrate.graph.facts import Facts, Span, Symbol, name_hash
from substrate.graph.grammars import grammar_for
from substrate.graph.records import (
    FileRecord,
    RegionRecord,
    SymbolRecord,
    encode_line,
    encode_lines,
    path_fields,
    path_id,
    short_id,
)

WORDS = re.compile(r"\w+")
#: Directories that hold sources and are no part of a module's name.
_SOURCE_ROOTS = ("src/", "lib/", "python/")


class Section(NamedTuple):
    oid: bytes
    #: See `languages.name_key`; with the oid it finds the facts in the cache.
    key: str
    #: The lines in each of `layout.FILES`.
    chunks: tuple[bytes, bytes, bytes, bytes, bytes]
    #: 32-bit hashes of the names of its symbols, and of the names its edges depend on.
    defined: bytes
    mentioned: bytes
    has_trouble: bool


def symbol_id(path_id_: str, symbol: Symbol) -> str:
    return short_id(path_id_, symbol.kind, symbol.local, str(symbol.ordinal))


class RegionIds:
    """Ids of regions: of the path and the text, not of the place, so that moved code keeps them."""

    def __init__(self, path_id_: str) -> None:
        self._prefix = path_id_[:10]
        self._seen: dict[str, int] = {}

    def next(self, span: Span) -> str:
        base = self._prefix + span.hash[:12]
        number = self._seen.get(base, 0)
        self._seen[base] = number + 1
        return f"{base}-{number}" if number else base


class Regions(NamedTuple):
    definitions: list[str]
    imports: list[str]
    calls: list[str]


def region_ids(path_id_: str, facts: Facts) -> Regions:
    """One id for each symbol, import and call; what has the same place has the same id."""
    ids = RegionIds(path_id_)
    definitions = [ids.next(detail.span) for detail in facts.details]
    imports: list[str] = []
    for _, same in groupby(facts.imports, key=lambda found: found.span):
        count = len(list(same))
        imports += [ids.next(facts.imports[len(imports)].span)] * count
    calls = [
        definitions[call.scope] if call.type == "inherits" else ids.next(call.span)
        for call in facts.calls
    ]
    return Regions(definitions, imports, calls)


def static_section(path: bytes, oid: bytes, key: str, facts: Facts) -> Section:
    """Everything but the edges."""
    pid = path_id(path)
    text, encoded = path_fields(path)
    file_line = encode_line(
        FileRecord(
            pid, oid.hex(), facts.sha256, facts.language, facts.size, facts.loc,
            facts.generated or languages.is_generated_name(path), facts.binary,
            text, encoded, facts.trouble or UNSET,
        )
    )  # fmt: skip
    symbols, regions = b"", b""
    if facts.symbols:
        ids = region_ids(pid, facts)
        symbols = _symbol_lines(path, pid, facts, ids)
        regions = _region_lines(pid, facts, ids)
    chunks = (file_line + b"\n", symbols, regions, b"", b"")
    return Section(oid, key, chunks, _defined(facts), _mentioned(facts), bool(facts.trouble))


def _symbol_lines(path: bytes, pid: str, facts: Facts, ids: Regions) -> bytes:
    module = module_name(path, facts)
    grammar = grammar_for(facts.language)
    separator = grammar.separator if grammar else "."
    records = []
    for symbol, detail, region in zip(facts.symbols, facts.details, ids.definitions, strict=True):
        local = symbol.local.replace(".", separator) if separator != "." else symbol.local
        records.append(
            SymbolRecord(
                symbol_id(pid, symbol), pid, symbol.kind,
                symbol.name or module.rpartition(separator)[2],
                f"{module}{separator}{local}" if local else module,
                detail.visibility, facts.language, detail.signature, detail.docstring,
                detail.hash, region,
            )
        )  # fmt: skip
    return encode_lines(records)


def module_name(path: bytes, facts: Facts) -> str:
    """What the language calls the file: ``pkg.mod``, ``com.x``, ``crate::a``; else its path."""
    if facts.language == "Java":
        return facts.package or "(default)"
    text = path_fields(path)[0]
    for root in _SOURCE_ROOTS:
        text = text.removeprefix(root)
    stem = text.rpartition(".")[0] if "." in text.rpartition("/")[2] else text
    if facts.language == "Go":
        return text.rpartition("/")[0].replace("/", ".") or facts.package
    if facts.language == "Python" and stem.rpartition("/")[2] == "__init__":
        stem = stem.rpartition("/")[0] or "__init__"
    grammar = grammar_for(facts.language)
    return stem.replace("/", grammar.separator if grammar else ".")


def _region_lines(pid: str, facts: Facts, ids: Regions) -> bytes:
    records = []
    for region, detail in zip(ids.definitions, facts.details, strict=True):
        records.append(_region(pid, region, "definition", detail.span))
    previous = ""
    for region, found in zip(ids.imports, facts.imports, strict=True):
        if region != previous:
            records.append(_region(pid, region, "import", found.span))
            previous = region
    for region, call in zip(ids.calls, facts.calls, strict=True):
        if call.type != "inherits":
            records.append(_region(pid, region, "call", call.span))
    return encode_lines(records)


def _region(pid: str, region: str, purpose: str, span: Span) -> RegionRecord:
    return RegionRecord(
        region, pid, span.hash, purpose,
        span.start_line, span.start_col, span.end_line, span.end_col,
    )  # fmt: skip


def _defined(facts: Facts) -> bytes:
    return array("I", [name_hash(symbol.name) for symbol in facts.symbols[1:]]).tobytes()


def _mentioned(facts: Facts) -> bytes:
    """Every name whose meaning in another file can change an edge of this one."""
    names = {call.name for call in facts.calls}
    for call in facts.calls:
        if call.receiver:
            names.update(WORDS.findall(call.receiver))
    for found in facts.imports:
        names.update(WORDS.findall(found.module))
        names.update(name for name, _ in found.names)
    names.update(kind.rpartition(".")[2] for _, _, kind in facts.types)
    return array("I", sorted({name_hash(name) for name in names})).tobytes()
