"""Read one source: parse, query, sort, and sweep for nesting.

A full index spends most of its time here, once for every call and definition. So the hot path has
few small functions, and takes texts by byte offsets instead of querying nodes.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from tree_sitter import Node

from substrate.graph.grammars import Grammar, Source, signature
from substrate.graph.parse.blob_facts import CLASS_KINDS, Call, Detail, Facts, Import, Span, Symbol
from substrate.graph.parse.parsers import Captures, Found, tools
from substrate.graph.parse.syntax_tree import (
    AT_ONCE_BYTES,
    DEEPEST,
    comments_before,
    is_deep,
    last_code,
    stretches,
)

_TOO_DEEP = "nested too deeply"
_RECEIVER_CHARS = 80
_PARAMETER = re.compile(r"[(,*&]\s*(\w+)\s*(?=[:,=)\s])")
#: Copying a hash object is faster than making one.
_new_hash = blake2b(digest_size=8).copy


class _Scope:
    """A definition on the sweep's stack."""

    __slots__ = ("end", "holes", "local", "outer_start", "signature", "start", "symbol", "type")

    def __init__(self, start: int, end: int, symbol: int, local: str, kind: str) -> None:
        self.start = self.outer_start = start
        self.end = end
        self.symbol = symbol
        self.local = local
        self.type = kind
        #: Ranges of nested definitions, which its own hash leaves out.
        self.holes: list[tuple[int, int]] = []
        #: The signature of a function, for the names of its parameters.
        self.signature = ""


class _TooDeepError(Exception):
    """Deeply nested texts: hashing each of them would take quadratic time."""


class Reading:
    """Fills in the symbols, imports and calls of `facts`; `data` is from `as_utf8`."""

    def __init__(self, grammar: Grammar, language: str, data: bytes, facts: Facts) -> None:
        self.grammar = grammar
        self.import_calls, self.assigned = grammar.import_calls, grammar.assigned
        self.tools = tools(language)
        self.data = data
        self.source = Source(data)
        self.facts = facts
        #: How often each kind and name, and each text of a region, occurred.
        self.seen: dict[str, int] = {}
        self.regions: dict[str, int] = {}
        self.definitions: set[tuple[int, int]] = set()
        #: The range of decorators and the like before the next definition.
        self.outer: tuple[int, int] | None = None
        self.is_deep = False
        #: What the query found; None if that is too much at once.
        self.whole: Found | None = None
        self.stack: list[_Scope] = []
        self.own: list[_Scope] = []
        self.bytes_to_hash = 64 * len(data) + (1 << 20)

    # Three steps, so that `extract_all` can run each step for many sources.

    def parse(self) -> None:
        self.root = self.tools.parser.parse(self.data).root_node

    def query(self) -> None:
        root = self.root
        if root.has_error:
            self.facts.trouble = "syntax errors"
        self.is_deep = is_deep(root)
        if not self.is_deep and len(self.data) <= AT_ONCE_BYTES:
            self.whole = self.tools.found(root)

    def read(self) -> None:
        self._module()
        try:
            if self.whole is not None:
                self._read(0, len(self.data), self.whole)
            else:
                self._read_by_stretches()
        except _TooDeepError:
            self.facts.trouble = _TOO_DEEP
        self._hash_own_text()

    def _read_by_stretches(self) -> None:
        cursors = self.tools.cursors(DEEPEST if self.is_deep else None)
        if self.is_deep:
            self.facts.trouble = _TOO_DEEP
        for start, end in stretches(self.root):
            for cursor, _ in cursors:
                cursor.set_byte_range(start, end)
            self._read(start, end, [(p, cursor.matches(self.root)) for cursor, p in cursors])

    def _read(self, first: int, last: int, found_by_query: Found) -> None:
        """Read the matches that begin between two offsets."""
        found = []
        stack, serial = self.stack, 0
        for places, matches in found_by_query:
            for pattern, captures in matches:
                number, anchor = places[pattern]
                node = captures[anchor][0]
                start = node.start_byte
                if first <= start < last:  # patterns of the root extend beyond the range
                    # The unique serial number precedes the nodes, so that they are never compared.
                    found.append((start, -node.end_byte, number, serial, node, captures))
                    serial += 1
        found.sort()
        kinds, calls, defines = self.tools.kinds, self.tools.calls, self.tools.defines
        for start, minus_end, pattern, _, node, captures in found:
            while stack[-1].end <= start and len(stack) > 1:
                stack.pop()
            if calls[pattern]:
                self._call(calls[pattern], node, captures, start, -minus_end)
            elif defines[pattern]:
                self._definition(kinds[pattern], node, captures, start, -minus_end)
            else:
                self._other(kinds[pattern], node, captures, start, -minus_end)

    def _span(self, start: int, end: int, first: Node, last: Node) -> Span:
        """From where `first` begins to where `last` ends."""
        self.bytes_to_hash -= end - start
        if self.bytes_to_hash < 0:
            raise _TooDeepError
        hashed = _new_hash()
        hashed.update(self.data[start:end])
        digest = hashed.hexdigest()
        regions, name = self.regions, digest[:12]
        if digest in regions:
            number = regions[digest] = regions[digest] + 1
            name = f"{name}-{number}"
        else:
            regions[digest] = 0
        start_row, start_column = first.start_point
        end_row, end_column = last.end_point
        return Span(start_row + 1, start_column, end_row + 1, end_column, digest, name)

    # -- definitions ----------------------------------------------------------------------------

    def _module(self) -> None:
        data, facts = self.data, self.facts
        facts.symbols.append(Symbol("module", "", "", -1, _MODULE_KEY, []))
        digest = _digest(data)
        self.regions[digest] = 1
        width = len(data) - data.rfind(b"\n") - 1
        span = Span(1, 0, facts.loc or 1, width, digest, digest[:12])
        facts.details.append(Detail("public", "", "", "", span))
        scope = _Scope(0, len(data) + 1, 0, "", "module")
        self.stack.append(scope)
        self.own.append(scope)

    def _definition(self, kind: str, node: Node, captures: Captures, start: int, end: int) -> None:
        if (start, end) in self.definitions:
            return  # a second pattern matched the same node
        names, source = captures.get("n"), self.source
        told = self.grammar.describe(kind, node, names[0] if names else None, source)
        if told is None or not told.name:
            return
        self.definitions.add((start, end))
        around = self.stack[-1]
        parent, name, real = around.symbol, told.name, told.kind
        local = f"{around.local}.{name}" if around.local else name
        if told.is_scope_only:
            self.stack.append(_Scope(start, end, parent, local, "scope"))
            return
        if told.owner:
            local, parent = f"{told.owner}.{name}", self._owner(told.owner)
        elif real == "function" and around.type in CLASS_KINDS:
            real = "method"
        elif real == "method" and around.type not in CLASS_KINDS:
            real = "function" if around.type in ("module", "function") else "method"
        facts = self.facts
        index = len(facts.symbols)
        scope = _Scope(start, end, index, local, real)
        outer, self.outer = self.outer, None
        if outer is not None and outer[1] >= end:
            scope.outer_start = outer[0]
            around.holes.append(outer)
        else:
            around.holes.append((start, end))
        last, comments = node, None
        if self.grammar.ends_before_comments:
            last = last_code(node, end, self.data)
            scope.end = last.end_byte
            if told.body is not None:
                comments = comments_before(node, told.body, self.data)
        span = self._span(start, scope.end, node, last)
        head_end = told.body.start_byte if told.body is not None else end
        text = signature(source, start, head_end, comments)
        key = self._symbol_key(real, local)
        facts.symbols.append(Symbol(real, name, local, parent, key, told.bases))
        facts.details.append(Detail(told.visibility, text, told.docstring, "", span))
        self.own.append(scope)
        if real not in ("constant", "variable"):
            self.stack.append(scope)
            if real not in CLASS_KINDS:
                scope.signature = text
        for base in told.bases:
            self._inherits(index, base, span)

    def _symbol_key(self, kind: str, local: str) -> str:
        text = f"{kind} {local}"
        number = self.seen.get(text, 0)
        self.seen[text] = number + 1
        return _symbol_digest(text, number)

    def _owner(self, owner: str) -> int:
        for index, symbol in enumerate(self.facts.symbols):
            if symbol.name == owner and symbol.kind in CLASS_KINDS:
                return index
        return 0

    def _inherits(self, index: int, base: str, span: Span) -> None:
        receiver, name = _split_receiver(base)
        self.facts.calls.append(Call(index, receiver, name, "inherits", span))

    def _hash_own_text(self) -> None:
        data = self.data
        for scope, detail in zip(self.own, self.facts.details, strict=True):
            if not scope.holes and scope.outer_start == scope.start and scope.symbol:
                detail.hash = detail.span.hash  # the same text: nodes have no blanks around them
                continue
            pieces, at = [], scope.outer_start
            for start, end in scope.holes:
                if start > at:
                    pieces.append(data[at:start].strip())
                at = max(at, end)
            pieces.append(data[at : scope.end].strip())
            detail.hash = _digest(b"\n".join(filter(None, pieces)))

    # -- the rest -------------------------------------------------------------------------------

    def _call(self, called: str, node: Node, captures: Captures, start: int, end: int) -> None:
        data, callee, receiver, given = self.data, captures["f"][0], "", False
        name = data[callee.start_byte : callee.end_byte].decode()
        if name in self.import_calls and self._import(node, start, end):
            return
        if "r" in captures:
            receiver = self._receiver(captures["r"][0])
            if called == "function":
                called = "method"
        if not receiver:
            for around in self.stack:
                if name in around.signature and name in _PARAMETER.findall(around.signature):
                    given = True
                    break
        scope = self.stack[-1].symbol
        span = self._span(start, end, node, node)
        self.facts.calls.append(Call(scope, receiver, name, called, span, given))
        if self.assigned is not None and name[:1].isupper():
            variable = self.assigned(node, self.source)
            if variable:
                kind = f"{receiver}.{name}" if receiver else name
                self.facts.types.append((scope, variable, kind))

    def _receiver(self, node: Node) -> str:
        start, end = node.start_byte, node.end_byte
        if end - start > 8 * _RECEIVER_CHARS:
            text = self.source.beginning(node, 8 * _RECEIVER_CHARS)
        else:
            text = self.data[start:end].decode()
        if not text.isidentifier():
            text = "".join(text[: 2 * _RECEIVER_CHARS].split())
        return text[:_RECEIVER_CHARS]

    def _import(self, node: Node, start: int, end: int) -> bool:
        raw = self.grammar.imports(node, self.source)
        if not raw:
            return False
        scope = self.stack[-1].symbol
        span = self._span(start, end, node, node)
        for module, names, alias, level in raw:
            self.facts.imports.append(Import(module, level, names, alias, span, scope))
        return True

    def _other(self, kind: str, node: Node, captures: Captures, start: int, end: int) -> None:
        text = self.source.text
        if kind == "import":
            self._import(node, start, end)
        elif kind == "outer":
            self.outer = (start, end)
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
    hashed = _new_hash()
    hashed.update(data)
    return hashed.hexdigest()


def _symbol_digest(text: str, number: int) -> str:
    """A digest of kind and name, ``method Store.read``, and how many equal ones precede it."""
    hashed = _new_hash()
    hashed.update(f"{text} {number}".encode())
    return hashed.hexdigest()[:12]


_MODULE_KEY = _symbol_digest("module ", 0)


def _split_receiver(text: str) -> tuple[str, str]:
    for separator in ("::", "."):
        receiver, found, name = text.rpartition(separator)
        if found:
            return receiver, name
    return "", text
