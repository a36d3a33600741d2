"""One path's part of a snapshot: its lines in the five files, and the names it defines and uses.

The first three files depend only on the path and its facts. The two edge files also depend on
other files; `resolve` makes them.
"""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from msgspec import UNSET

from substrate.graph.grammars import grammar_for
from substrate.graph.index.records import (
    FileRecord,
    RegionRecord,
    SymbolRecord,
    encode_line,
    encode_lines,
    path_fields,
    path_id,
)
from substrate.graph.parse import Facts, Import, Span, Symbol, languages, name_hash, name_hashes

WORDS = re.compile(r"\w+")
#: Added to the mentioned names of files that import something under an alias: see `name_reach`.
RENAMES = "\0renames"
#: Source directories that are not part of a module's name.
_SOURCE_ROOTS = ("src/", "lib/", "python/")


class Section(NamedTuple):
    oid: bytes
    #: See `languages.name_key`; with the oid it finds the facts in the cache.
    key: str
    #: The lines in each of `graph_paths.FILES`.
    chunks: tuple[bytes, bytes, bytes, bytes, bytes]
    #: 32-bit hashes of the names of its symbols, and of the names its edges depend on.
    defined: bytes
    mentioned: bytes
    #: Hashes of the ids of the symbols that its edges point to.
    called: bytes
    has_trouble: bool


#: How many characters of its path's id begin the id of a symbol or region.
PREFIX_CHARS = 10


def symbol_id(path_id_: str, symbol: Symbol) -> str:
    return path_id_[:PREFIX_CHARS] + symbol.key


def region_id(path_id_: str, span: Span) -> str:
    return path_id_[:PREFIX_CHARS] + span.name


class Counted(NamedTuple):
    """A section, and how many lines it has in each of the first three files."""

    section: Section
    lines: tuple[int, int, int]


def static_section(path: bytes, oid: bytes, key: str, facts: Facts) -> Section:
    """Everything but the edges."""
    return counted_section(path, oid, key, facts).section


def counted_section(path: bytes, oid: bytes, key: str, facts: Facts) -> Counted:
    """The same, with the number of lines: for callers that make many sections."""
    pid = path_id(path)
    text, encoded = path_fields(path)
    file_line = encode_line(
        FileRecord(
            pid, oid.hex(), facts.sha256, facts.language, facts.size, facts.loc,
            facts.generated or languages.is_generated_name(path), facts.binary,
            text, encoded, facts.trouble or UNSET,
        )
    )  # fmt: skip
    symbols, regions, count = b"", b"", 0
    if facts.symbols:
        symbols = _symbol_lines(path, pid, facts)
        regions, count = _region_lines(pid, facts)
    chunks = (file_line + b"\n", symbols, regions, b"", b"")
    names = _defined(facts), _mentioned(facts)
    section = Section(oid, key, chunks, *names, b"", bool(facts.trouble))
    return Counted(section, (1, len(facts.symbols), count))


def _symbol_lines(path: bytes, pid: str, facts: Facts) -> bytes:
    module = module_name(path, facts)
    grammar = grammar_for(facts.language)
    separator = grammar.separator if grammar else "."
    records = []
    # `symbol_id` and `region_id` are inlined: this runs for every symbol.
    prefix, language, inside = pid[:PREFIX_CHARS], facts.language, module + separator
    for symbol, detail in zip(facts.symbols, facts.details, strict=True):
        local = symbol.local
        if separator != ".":
            local = local.replace(".", separator)
        records.append(
            SymbolRecord(
                prefix + symbol.key, pid, symbol.kind,
                symbol.name or module.rpartition(separator)[2], inside + local if local else module,
                detail.visibility, language, detail.signature, detail.docstring,
                detail.hash, prefix + detail.span.name,
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


def _region_lines(pid: str, facts: Facts) -> tuple[bytes, int]:
    spans = [("definition", detail.span) for detail in facts.details]
    previous = None
    for found in facts.imports:
        if found.span != previous:  # one statement may import several modules
            previous = found.span
            spans.append(("import", previous))
    spans += [("call", call.span) for call in facts.calls if call.type != "inherits"]
    prefix = pid[:PREFIX_CHARS]
    records = [
        RegionRecord(
            prefix + span.name, pid, span.hash, purpose,
            span.start_line, span.start_col, span.end_line, span.end_col,
        )
        for purpose, span in spans
    ]  # fmt: skip
    return encode_lines(records), len(records)


def _defined(facts: Facts) -> bytes:
    return array("I", [name_hash(symbol.name) for symbol in facts.symbols[1:]]).tobytes()


def _mentioned(facts: Facts) -> bytes:
    """Every name whose meaning in another file can change an edge of this one."""
    names = {call.name for call in facts.calls}
    texts = {call.receiver for call in facts.calls}
    for found in facts.imports:
        texts.add(found.module)
        names.update([name for name, _ in found.names])
    texts.update([kind for _, _, kind in facts.types])
    # ``void Foo::bar() { baz(); }`` searches for `Foo` in other files without a call that names it.
    texts.update([s.local.rpartition(".")[0] for s in facts.symbols if s.parent <= 0])
    names.update(WORDS.findall(" ".join(texts)))
    if any(map(_renames, facts.imports)):
        names.add(RENAMES)
    return array("I", sorted(name_hashes(names))).tobytes()


def _renames(found: Import) -> bool:
    if any(name != alias for name, alias in found.names):
        return True
    return bool(found.alias) and found.alias not in WORDS.findall(found.module)
