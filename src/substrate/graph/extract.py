"""From a blob's bytes to facts: parse once, query once, sort, and sweep for nesting."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b as _blake
from hashlib import sha256
from importlib import import_module
from itertools import accumulate

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from substrate.graph import languages
from substrate.graph.facts import Call, Detail, Facts, Import, Span, Symbol
from substrate.graph.grammars import grammar_for
from substrate.graph.grammars.grammar import Description, Grammar, Source, signature
from substrate.graph.syntax_tree import (
    AT_ONCE_BYTES,
    DEEPEST,
    as_utf8,
    is_deep,
    last_code,
    stretches,
)

#: Larger sources are tables or bundles; parsing one would hold a core for seconds.
MAX_PARSED_BYTES = 2 << 20
_TOO_DEEP = "nested too deeply"
_RECEIVER_CHARS = 80
_PARAMETER = re.compile(r"[(,*&]\s*(\w+)\s*(?=[:,=)\s])")
_DEFINITIONS = frozenset(
    (
        *("function", "method", "class", "type", "constant", "variable", "interface", "enum"),
        *("struct", "trait", "namespace", "macro", "constructor", "scope"),
    )
)
_CALLS = {
    "call": "function",
    "new": "constructor",
    "decorator": "decorator",
    "macro_call": "macro",
    "jsx": "component",
}
_ANCHORS = {
    **dict.fromkeys(_CALLS, "c"),
    "import": "i",
    "type_of": "v",
    "package": "p",
    "export": "x",
}
#: Kinds whose functions are methods.
CLASS_KINDS = frozenset({"class", "interface", "struct", "trait", "enum", "scope", "type"})


_Matches = list[tuple[int, dict[str, list[Node]]]]


class _Tools:
    """A language's parser and query, made once a process."""

    def __init__(self, grammar: Grammar) -> None:
        make = getattr(import_module(grammar.package), grammar.function)
        language = Language(make())
        self.parser = Parser(language)
        self.query = Query(language, "\n".join(text for _, text in grammar.patterns))
        self.cursor = QueryCursor(self.query)
        self.kinds = tuple(kind for kind, _ in grammar.patterns)
        #: The capture that says where a match is.
        self.anchors = tuple(_ANCHORS.get(kind, "d") for kind in self.kinds)


@cache
def _tools(language: str) -> _Tools:
    grammar = grammar_for(language)
    assert grammar is not None
    return _Tools(grammar)


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
        _Reading(grammar, language, data, facts).run()
    except Exception as error:  # noqa: BLE001  one file's trouble costs that file only
        facts.trouble = f"not read: {type(error).__name__}"
        facts.symbols, facts.details, facts.imports, facts.calls = [], [], [], []
    return facts


def _go_module(data: bytes) -> str:
    found = re.search(rb"^module[ \t]+\"?([^\s\"]+)", data, re.MULTILINE)
    return found[1].decode("utf-8", "replace") if found else ""


class _Scope:
    """A definition on the sweep's stack."""

    __slots__ = ("end", "holes", "local", "outer_start", "signature", "start", "symbol", "type")

    def __init__(self, start: int, end: int, symbol: int, local: str, kind: str) -> None:
        self.start, self.outer_start, self.end = start, start, end
        self.symbol, self.local, self.type = symbol, local, kind
        #: Ranges of what is nested in it, for its own hash.
        self.holes: list[tuple[int, int]] = []
        #: A function's, for the names it is given.
        self.signature = ""


class _TooDeepError(Exception):
    """Texts inside texts: hashing each would take time by the square of the size."""


class _Reading:
    """One file being read."""

    def __init__(self, grammar: Grammar, language: str, data: bytes, facts: Facts) -> None:
        self.grammar = grammar
        self.tools = _tools(language)
        self.source = Source(as_utf8(data, language))
        self.facts = facts
        self.seen: dict[tuple[str, str], int] = {}
        self.definitions: set[tuple[int, int]] = set()
        self.regions: dict[str, int] = {}
        #: Where decorators and the like begin and end, for the definition that comes next.
        self.outer: tuple[int, int] | None = None
        self.stack: list[_Scope] = []
        self.own: list[_Scope] = []
        #: Where lines begin. Asking a node for its points makes two objects each time.
        lines = self.source.data.splitlines(keepends=True)
        self.lines = [0, *accumulate(map(len, lines))]
        if lines and not lines[-1].endswith(b"\n"):
            self.lines.pop()
        self.bytes_to_hash = 64 * len(self.source.data) + (1 << 20)

    def run(self) -> None:
        root = self.tools.parser.parse(self.source.data).root_node
        if root.has_error:
            self.facts.trouble = "syntax errors"
        self._module(root)
        try:
            for start, end, matches in self._matches(root):
                self._read(start, end, matches)
        except _TooDeepError:
            self.facts.trouble = _TOO_DEEP
        self._hash_own_text()

    def _matches(self, root: Node) -> Iterator[tuple[int, int, _Matches]]:
        """Stretches of the file, and what begins in each."""
        deep = is_deep(root)
        if not deep and len(self.source.data) <= AT_ONCE_BYTES:
            yield 0, len(self.source.data), self.tools.cursor.matches(root)
            return
        cursor = QueryCursor(self.tools.query)
        if deep:
            self.facts.trouble = _TOO_DEEP
            cursor.set_max_start_depth(DEEPEST)
        for start, end in stretches(root):
            cursor.set_byte_range(start, end)
            yield start, end, cursor.matches(root)

    def _read(self, first: int, last: int, matches: _Matches) -> None:
        found = []
        kinds, anchors, stack = self.tools.kinds, self.tools.anchors, self.stack
        for number, (pattern, captures) in enumerate(matches):
            node = captures[anchors[pattern]][0]
            start = node.start_byte
            if first <= start < last:  # patterns that begin at the root reach beyond the stretch
                # The number decides last, so that nodes are never compared.
                found.append((start, -node.end_byte, pattern, number, node, captures))
        found.sort()
        for start, minus_end, pattern, _, node, captures in found:
            kind = kinds[pattern]
            while stack[-1].end <= start and len(stack) > 1:
                stack.pop()
            if kind in _CALLS:
                self._call(kind, node, captures, start, -minus_end)
            elif kind in _DEFINITIONS:
                self._definition(kind, node, captures, start, -minus_end)
            else:
                self._other(kind, node, captures)

    # -- definitions ----------------------------------------------------------------------------

    def _module(self, root: Node) -> None:
        data = self.source.data
        self.facts.symbols.append(Symbol("module", "", "", -1, self._symbol_key("module", ""), []))
        end_line = self.facts.loc or 1
        last = data.rpartition(b"\n")[2]
        digest = _digest(data)
        span = Span(1, 0, end_line, len(last), digest, self._name_of(digest))
        self.facts.details.append(Detail("public", "", "", "", span))
        scope = _Scope(0, len(data) + 1, 0, "", "module")
        self.stack.append(scope)
        self.own.append(scope)

    def _definition(
        self, kind: str, node: Node, captures: dict[str, list[Node]], start: int, end: int
    ) -> None:
        if (start, end) in self.definitions:
            return  # a second pattern saw the same node
        names = captures.get("n")
        told = self.grammar.describe(kind, node, names[0] if names else None, self.source)
        if told is None or not told.name:
            return
        self.definitions.add((start, end))
        around = self.stack[-1]
        parent = around.symbol
        local = f"{around.local}.{told.name}" if around.local else told.name
        if told.is_scope_only:
            self.stack.append(_Scope(start, end, parent, local, "scope"))
            return
        real = told.kind
        if told.owner:
            local, parent = f"{told.owner}.{told.name}", self._owner(told.owner)
        elif real == "function" and around.type in CLASS_KINDS:
            real = "method"
        elif real == "method" and around.type not in CLASS_KINDS and not told.owner:
            real = "function" if around.type in ("module", "function") else "method"
        index = len(self.facts.symbols)
        scope = _Scope(start, end, index, local, real)
        outer_start, outer_end = self.outer or (0, -1)
        if outer_end >= end:
            scope.outer_start = outer_start
            around.holes.append((outer_start, outer_end))
        else:
            around.holes.append((start, end))
        self.outer = None
        detail = self._detail(node, told, scope)
        key = self._symbol_key(real, local)
        self.facts.symbols.append(Symbol(real, told.name, local, parent, key, told.bases))
        self.facts.details.append(detail)
        self.own.append(scope)
        if real not in ("constant", "variable"):
            self.stack.append(scope)
            if real not in CLASS_KINDS:
                scope.signature = detail.signature
        for base in told.bases:
            self._inherits(index, base, detail.span)

    def _symbol_key(self, kind: str, local: str) -> str:
        number = self.seen.get((kind, local), 0)
        self.seen[kind, local] = number + 1
        return _digest(f"{kind} {local} {number}".encode("utf-8", "surrogatepass"))[:12]

    def _owner(self, owner: str) -> int:
        for index, symbol in enumerate(self.facts.symbols):
            if symbol.name == owner and symbol.kind in CLASS_KINDS:
                return index
        return 0

    def _detail(self, node: Node, told: Description, scope: _Scope) -> Detail:
        if self.grammar.ends_before_comments:
            last = last_code(node, scope.end, self.source.data)
            if last is not node:
                scope.end = max(last.end_byte, scope.start + 1)
        span = self._span(scope.start, scope.end)
        text = signature(self.source, node, told.body)
        return Detail(told.visibility, text, told.docstring, "", span)

    def _span(self, start: int, end: int) -> Span:
        self.bytes_to_hash -= end - start
        if self.bytes_to_hash < 0:
            raise _TooDeepError
        lines = self.lines
        row = last = bisect_right(lines, start)
        if last < len(lines) and end >= lines[last]:
            last = bisect_right(lines, end, last)
        digest = _blake(self.source.data[start:end], digest_size=8).hexdigest()
        regions, name = self.regions, digest[:12]  # as `_name_of`, once for every call there is
        number = regions[digest] = regions.get(digest, -1) + 1
        if number:
            name = f"{name}-{number}"
        return Span(row, start - lines[row - 1], last, end - lines[last - 1], digest, name)

    def _name_of(self, digest: str) -> str:
        """What tells a region from others of the file."""
        number = self.regions.get(digest, 0)
        self.regions[digest] = number + 1
        return f"{digest[:12]}-{number}" if number else digest[:12]

    def _inherits(self, index: int, base: str, span: Span) -> None:
        receiver, name = _split_receiver(base)
        self.facts.calls.append(Call(index, receiver, name, "inherits", span))

    def _hash_own_text(self) -> None:
        data = self.source.data
        for scope in self.own:
            detail = self.facts.details[scope.symbol]
            if not scope.holes and scope.outer_start == scope.start and scope.symbol:
                detail.hash = detail.span.hash  # of the same text: nodes have no blanks around them
                continue
            pieces, at = [], scope.outer_start
            for start, end in scope.holes:
                if start > at:
                    pieces.append(data[at:start].strip())
                at = max(at, end)
            pieces.append(data[at : scope.end].strip())
            detail.hash = _digest(b"\n".join(filter(None, pieces)))

    # -- the rest -------------------------------------------------------------------------------

    def _call(
        self, kind: str, node: Node, captures: dict[str, list[Node]], start: int, end: int
    ) -> None:
        grammar, callee = self.grammar, captures["f"][0]
        name = self.source.data[callee.start_byte : callee.end_byte].decode()
        if name in grammar.import_calls and self._import(node):
            return
        called, receiver = _CALLS[kind], ""
        if "r" in captures:
            receiver = self.source.beginning(captures["r"][0], 8 * _RECEIVER_CHARS)
            if not receiver.isidentifier():
                receiver = "".join(receiver[: 2 * _RECEIVER_CHARS].split())
            receiver = receiver[:_RECEIVER_CHARS]
            if called == "function":
                called = "method"
        span = self._span(start, end)
        scope = self.stack[-1].symbol
        given = not receiver and self._is_parameter(name)
        self.facts.calls.append(Call(scope, receiver, name, called, span, given))
        if grammar.assigned is not None and name[:1].isupper():
            variable = grammar.assigned(node, self.source)
            if variable:
                kind = f"{receiver}.{name}" if receiver else name
                self.facts.types.append((scope, variable, kind))

    def _is_parameter(self, name: str) -> bool:
        for around in self.stack:
            if name in around.signature and name in _PARAMETER.findall(around.signature):
                return True
        return False

    def _import(self, node: Node) -> bool:
        raw = self.grammar.imports(node, self.source)
        span = self._span(node.start_byte, node.end_byte) if raw else None
        for one in raw:
            assert span is not None
            scope = self.stack[-1].symbol
            self.facts.imports.append(
                Import(one.module, one.level, one.names, one.alias, span, scope)
            )
        return bool(raw)

    def _other(self, kind: str, node: Node, captures: dict[str, list[Node]]) -> None:
        text = self.source.text
        if kind == "import":
            self._import(node)
        elif kind == "outer":
            self.outer = (node.start_byte, node.end_byte)
        elif kind == "type_of":
            variable = text(captures["v"][0])
            if "o" in captures:
                variable = f"{text(captures['o'][0])}.{variable}"
            self.facts.types.append((self.stack[-1].symbol, variable, text(captures["t"][0])))
        elif kind == "package":
            self.facts.package = text(captures["p"][0])
        elif kind == "export":
            exported = captures["x"][0]
            is_alias = exported.type not in ("export_statement", "member_expression")
            self.facts.exports.append(
                (text(exported) if is_alias else "default", text(captures["l"][0]))
            )


def _digest(data: bytes) -> str:
    return _blake(data, digest_size=8).hexdigest()


def _split_receiver(text: str) -> tuple[str, str]:
    for separator in ("::", "."):
        receiver, found, name = text.rpartition(separator)
        if found:
            return receiver, name
    return "", text
