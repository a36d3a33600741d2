"""From a blob's bytes to facts: the kind of file, and the contents of its source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from substrate.graph.grammars import grammar_for
from substrate.graph.parse import languages
from substrate.graph.parse.blob_facts import Facts
from substrate.graph.parse.parse_source import Reading
from substrate.graph.parse.syntax_tree import as_utf8

#: Larger sources are tables or bundles; parsing one would occupy a core for seconds.
MAX_PARSED_BYTES = 2 << 20


#: The most sources, and the most bytes, that are processed together.
_TOGETHER = 16
_TOGETHER_BYTES = 64 << 10


def extract(key: str, data: bytes) -> Facts:
    """The facts of one blob at a path with this `languages.name_key`; never raises for content."""
    return extract_all([(key, data)])[0]


def extract_all(items: Iterable[tuple[str, bytes]]) -> list[Facts]:
    """The facts of many blobs, in order.

    A few blobs are parsed, then queried, then read. File by file, the code and tables of parser,
    query and Python would evict each other from the CPU caches.
    """
    made: list[Facts] = []
    together: list[Reading] = []
    room = _TOGETHER_BYTES
    for key, data in items:
        facts, reading = _begun(key, data)
        made.append(facts)
        if reading is not None:
            together.append(reading)
            room -= len(data)
            if room <= 0 or len(together) == _TOGETHER:
                _read_together(together)
                together, room = [], _TOGETHER_BYTES
    _read_together(together)
    return made


def _begun(key: str, data: bytes) -> tuple[Facts, Reading | None]:
    """The facts known without a parser, and what a parser must read."""
    binary = languages.is_binary(data)
    language = "" if binary and not key else languages.detect(key, data)
    facts = Facts(
        sha256=sha256(data).hexdigest(),
        size=len(data),
        loc=0 if binary else languages.count_lines(data),
        language=language,
        binary=binary,
        generated=not binary and languages.says_generated(data),
        trouble="",
        package=_go_module(data) if key == "go.mod" else "",
        symbols=[], details=[], imports=[], calls=[], types=[], exports=[],
    )  # fmt: skip
    grammar = None if binary else grammar_for(language)
    if grammar is None:
        return facts, None
    if len(data) > MAX_PARSED_BYTES:
        facts.trouble = "too large to parse"
        return facts, None
    try:
        return facts, Reading(grammar, language, as_utf8(data, language), facts)
    except Exception as error:  # noqa: BLE001  one file's trouble costs that file only
        _fail(facts, error)
        return facts, None


def _read_together(readings: list[Reading]) -> None:
    for step in (Reading.parse, Reading.query, Reading.read):
        fine = []
        for reading in readings:
            try:
                step(reading)
                fine.append(reading)
            except Exception as error:  # noqa: BLE001  likewise
                _fail(reading.facts, error)
        readings = fine


def _fail(facts: Facts, error: Exception) -> None:
    facts.trouble = f"not read: {type(error).__name__}"
    facts.symbols, facts.details, facts.imports, facts.calls = [], [], [], []


def _go_module(data: bytes) -> str:
    found = re.search(rb"^module[ \t]+\"?([^\s\"]+)", data, re.MULTILINE)
    return found[1].decode("utf-8", "replace") if found else ""
