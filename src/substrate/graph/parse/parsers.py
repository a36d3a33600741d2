"""A language's parser and queries, made once per process."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from substrate.graph.grammars import Grammar, grammar_for

_CALLS = {
    "call": "function",
    "new": "constructor",
    "decorator": "decorator",
    "macro_call": "macro",
    "jsx": "component",
}
_DEFINITIONS = frozenset(
    (
        *("function", "method", "class", "type", "constant", "variable", "interface", "enum"),
        *("struct", "trait", "namespace", "macro", "constructor", "scope"),
    )
)
#: The capture with the position of a match; that of a definition is ``d``.
_ANCHORS = {
    **dict.fromkeys(_CALLS, "c"),
    "import": "i",
    "type_of": "v",
    "package": "p",
    "export": "x",
}

Captures = dict[str, list[Node]]
Matches = list[tuple[int, Captures]]
#: By pattern of a query: its number in the grammar, and the capture with the match's position.
Places = tuple[tuple[int, str], ...]
#: By query, its matches.
Found = list[tuple[Places, Matches]]


class Tools:
    """A language's parser and query, made once per process."""

    def __init__(self, grammar: Grammar) -> None:
        language = Language(getattr(_binding(grammar.package), grammar.function)())
        self.parser = Parser(language)
        # A pattern for the root only, tried at every node and kept open until the end of the file,
        # would cost a tenth of all others: such patterns have a separate query and cursor.
        rooted: list[tuple[int, str, str]] = []
        inner: list[tuple[int, str, str]] = []
        for number, (kind, text) in enumerate(grammar.patterns):
            is_rooted = bool(grammar.root) and text.startswith(f"({grammar.root} ")
            (rooted if is_rooted else inner).append((number, _ANCHORS.get(kind, "d"), text))
        self._queries: list[tuple[Query, Places, int | None]] = []
        for patterns, deepest in ((inner, None), (rooted, 0)):
            if patterns:
                query = Query(language, "\n".join(text for _, _, text in patterns))
                places = tuple((number, anchor) for number, anchor, _ in patterns)
                self._queries.append((query, places, deepest))
        self._cursors = self.cursors()
        #: By pattern: its kind, the type of a call ("": not a call), whether it defines.
        self.kinds = tuple(kind for kind, _ in grammar.patterns)
        self.calls = tuple(_CALLS.get(kind, "") for kind in self.kinds)
        self.defines = tuple(kind in _DEFINITIONS for kind in self.kinds)

    def cursors(self, deepest: int | None = None) -> list[tuple[QueryCursor, Places]]:
        """New cursors: a cursor keeps the ranges that are set on it."""
        made = []
        for query, places, own_deepest in self._queries:
            cursor = QueryCursor(query)
            depth = deepest if own_deepest is None else own_deepest
            if depth is not None:
                cursor.set_max_start_depth(depth)
            made.append((cursor, places))
        return made

    def found(self, root: Node) -> Found:
        """All matches of a whole tree."""
        return [(places, cursor.matches(root)) for cursor, places in self._cursors]


@cache
def tools(language: str) -> Tools:
    grammar = grammar_for(language)
    assert grammar is not None
    return Tools(grammar)


def _binding(package: str) -> ModuleType:
    """The extension inside a grammar's package.

    The package itself only re-exports this function, and imports much of the standard library for
    queries that are not used here. That takes as long as parsing the first files.
    """
    name = f"{package}._binding"
    if name not in sys.modules:
        above = PathFinder.find_spec(package)
        places = above.submodule_search_locations if above is not None else None
        found = PathFinder.find_spec(name, places) if places else None
        if found is None or found.loader is None:
            return import_module(package)
        sys.modules[name] = module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]
