"""The languages whose symbols and edges are read, one module each, by Linguist's name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from substrate.graph.grammars.grammar import Grammar as Grammar
from substrate.graph.grammars.grammar import Source as Source
from substrate.graph.grammars.grammar import signature as signature

if TYPE_CHECKING:
    from substrate.graph.grammars.grammar import Grammar

_HERE = __name__ + "."

#: Language -> module and the name of the grammar in it.
_MODULES = {
    "Python": ("python", "PYTHON"),
    "JavaScript": ("javascript", "JAVASCRIPT"),
    "TypeScript": ("typescript", "TYPESCRIPT"),
    "TSX": ("typescript", "TSX"),
    "Go": ("go", "GO"),
    "Rust": ("rust", "RUST"),
    "Java": ("java", "JAVA"),
    "C": ("c", "C"),
    "C++": ("cpp", "CPP"),
    "Ruby": ("ruby", "RUBY"),
}

LANGUAGES = tuple(_MODULES)


@cache
def grammar_for(language: str) -> Grammar | None:
    """The grammar of a language; None for a language whose files are only counted."""
    found = _MODULES.get(language)
    if found is None:
        return None
    module, name = found
    grammar: Grammar = getattr(import_module(_HERE + module), name)
    return grammar
