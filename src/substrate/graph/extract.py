"""From a blob's bytes to facts: what the file is, and what its source says."""

from __future__ import annotations

import re
from hashlib import sha256

from substrate.graph import languages
from substrate.graph.facts import Facts
from substrate.graph.grammars import grammar_for
from substrate.graph.reading import Reading
from substrate.graph.syntax_tree import as_utf8

#: Larger sources are tables or bundles; parsing one would hold a core for seconds.
MAX_PARSED_BYTES = 2 << 20


def extract(key: str, data: bytes) -> Facts:
    """The facts of one blob at a path with this `languages.name_key`; never raises for content."""
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
        return facts
    if len(data) > MAX_PARSED_BYTES:
        facts.trouble = "too large to parse"
        return facts
    try:
        Reading(grammar, language, as_utf8(data, language), facts).run()
    except Exception as error:  # noqa: BLE001  one file's trouble costs that file only
        facts.trouble = f"not read: {type(error).__name__}"
        facts.symbols, facts.details, facts.imports, facts.calls = [], [], [], []
    return facts


def _go_module(data: bytes) -> str:
    found = re.search(rb"^module[ \t]+\"?([^\s\"]+)", data, re.MULTILINE)
    return found[1].decode("utf-8", "replace") if found else ""
