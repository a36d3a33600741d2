"""The facts of one blob, independent of its path: symbols, imports, calls.

Facts are cached by blob id and language; everything that depends on the path (ids, qualified
names) or on other files (edges) is derived from them later.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from msgspec import Raw, Struct, msgpack

#: Kinds whose functions are methods.
CLASS_KINDS = frozenset({"class", "interface", "struct", "trait", "enum", "scope", "type"})

# `gc=False`: these objects cannot form a cycle, and there are hundreds of thousands of them.


class Span(Struct, array_like=True, frozen=True, gc=False):
    """A piece of the file: lines from 1, columns in bytes from 0, the end exclusive."""

    start_line: int
    start_col: int
    end_line: int
    end_col: int
    #: 64 bits of BLAKE2b of its text.
    hash: str
    #: Part of its id: from the text, not the position, so that moved code keeps its ids.
    name: str


class Symbol(Struct, array_like=True, gc=False):
    kind: str
    name: str
    #: Qualified inside the file: ``Store.read``.
    local: str
    #: Index of the symbol around it; 0 is the module itself, whose own parent is -1.
    parent: int
    #: Part of its id: from kind, name and, for equal ones (conditional definitions), a number.
    key: str
    #: The names of base classes, as written.
    bases: list[str]


class Detail(Struct, array_like=True, gc=False):
    """What a symbol's record needs but resolution does not; same order as the symbols."""

    visibility: str
    signature: str
    docstring: str
    #: Hash of its own text, without nested definitions that have their own symbol.
    hash: str
    span: Span


class Import(Struct, array_like=True, gc=False):
    #: As written: ``a.b``, ``./util``, ``crate::x``, ``stdio.h``.
    module: str
    #: Python's leading dots; 1 marks a quoted C include.
    level: int
    #: ``(name, bound as)`` pairs; ``*`` for all. Empty: the module itself is bound as `alias`.
    names: list[tuple[str, str]]
    alias: str
    span: Span
    #: Index of the enclosing symbol.
    scope: int


class Call(Struct, array_like=True, gc=False):
    #: Index of the enclosing symbol.
    scope: int
    #: The text before the dot, as written; "" if there is none.
    receiver: str
    name: str
    #: function, method, constructor, inherits, macro.
    type: str
    span: Span
    #: The name is a parameter of an enclosing function: its value is unknown.
    is_parameter: bool = False


class Facts(Struct, array_like=True, gc=False):
    sha256: str
    size: int
    loc: int
    language: str
    binary: bool
    generated: bool
    #: "" or why symbols are missing or incomplete.
    trouble: str
    #: Go and Java package, Go module path, …
    package: str
    symbols: list[Symbol]
    details: list[Detail]
    imports: list[Import]
    calls: list[Call]
    #: ``(scope, variable, type)``: the types of variables that were found.
    types: list[tuple[int, str, str]]
    #: ``(exported name, name inside)``, if the two can differ (JavaScript).
    exports: list[tuple[str, str]]


class Links(Struct, array_like=True, gc=False):
    """Facts without the details, which edges do not need: the same order of fields."""

    sha256: Raw
    size: Raw
    loc: Raw
    language: str
    binary: Raw
    generated: Raw
    trouble: Raw
    package: str
    symbols: list[Symbol]
    details: Raw
    imports: list[Import]
    calls: list[Call]
    types: list[tuple[int, str, str]]
    exports: list[tuple[str, str]]


class _Outlined(Struct, array_like=True, gc=False):
    """Facts with only the fields decoded that an outline needs."""

    sha256: Raw
    size: Raw
    loc: Raw
    language: str
    binary: Raw
    generated: Raw
    trouble: Raw
    package: str
    symbols: list[Symbol]
    details: Raw
    imports: list[Import]
    calls: Raw
    types: Raw
    exports: list[tuple[str, str]]


class Outline(Struct, array_like=True, gc=False):
    """The part of the facts that the resolution of other files may use."""

    language: str
    package: str
    symbols: list[Symbol]
    imports: list[Import]
    exports: list[tuple[str, str]]


encode_facts = msgpack.Encoder().encode
decode_facts = msgpack.Decoder(Facts).decode
#: The same bytes, decoded only for their edges.
decode_links = msgpack.Decoder(Links).decode
_decode_outlined = msgpack.Decoder(_Outlined).decode


def outline_of(facts: Facts | Links | _Outlined) -> Outline | None:
    """What other files may use; None if there is nothing."""
    if not facts.symbols and not facts.package:
        return None
    return Outline(facts.language, facts.package, facts.symbols, facts.imports, facts.exports)


def decode_outline(data: bytes) -> Outline | None:
    """The outline, from encoded facts."""
    return outline_of(_decode_outlined(data))


class _Hashes(dict[str, int]):
    """A cache of name hashes: most names occur in many files."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _MOST_HASHES:
            self.clear()
        made = self[name] = crc32(name.encode("utf-8", "surrogatepass"))
        return made


_MOST_HASHES = 20_000
_hash_of = _Hashes().__getitem__


def name_hash(name: str) -> int:
    """A 32-bit hash of a name, for the hash tables in `splice.Sections`."""
    return _hash_of(name)


def name_hashes(names: Iterable[str]) -> set[int]:
    """The hashes of many names."""
    return set(map(_hash_of, names))


def id_hashes(ids: Iterable[str]) -> set[int]:
    """The same for ids, without a cache: each id occurs only once or twice."""
    return {crc32(one.encode()) for one in ids}
