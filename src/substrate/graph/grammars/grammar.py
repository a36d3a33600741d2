"""What a language module defines for its language, and what its functions receive."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from tree_sitter import Node

_COMMENT_DRESS = re.compile(r"^(?:/\*+!?|//+!?|#+|\*+/|\*+|--)\s?|\s*\*/$")
_DRESSED = ("/", "#", "*", "-")
_SIGNATURE_CHARS = 240
_DOC_CHARS = 200


class Source:
    """The parsed bytes, which are UTF-8, and the text of a node."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode()

    def beginning(self, node: Node, most_bytes: int) -> str:
        """The text, cut after `most_bytes` bytes."""
        start = node.start_byte
        end = min(node.end_byte, start + most_bytes)
        return self.data[start:end].decode("utf-8", "ignore")


class RawImport(NamedTuple):
    """An import before it has a span: see `blob_facts.Import`."""

    module: str
    names: list[tuple[str, str]] = []  # noqa: RUF012  a tuple: never changed in place
    alias: str = ""
    level: int = 0


class Description(Struct, gc=False):
    """The properties of a definition."""

    kind: str
    name: str
    visibility: str = "public"
    #: The node where the signature ends and the body begins.
    body: Node | None = None
    docstring: str = ""
    bases: list[str] = []
    #: The type it belongs to if it is defined outside of that type (Go, C++).
    owner: str = ""
    #: Names a scope but is not a symbol itself (Rust's `impl`).
    is_scope_only: bool = False


#: ``(kind of the pattern, definition, name, source)`` -> what it is; None: not a definition.
Describe = Callable[[str, Node, Node | None, Source], Description | None]


class Grammar(NamedTuple):
    package: str
    #: Pattern kind and query text; one pattern each, so that a match names its kind.
    #: Captures: definitions ``@d @n``; calls ``@c @f`` and maybe ``@r``; imports ``@i``;
    #: types ``@v @t`` and maybe ``@o``; exports ``@x @l``; the package ``@p``; ``outer``: what
    #: belongs to the definition inside it (decorators, ``template<…>``, ``export``), ``@d``.
    patterns: tuple[tuple[str, str], ...]
    describe: Describe
    imports: Callable[[Node, Source], list[RawImport]]
    function: str = "language"
    #: The type of the root. A pattern that begins with it is tried only there.
    root: str = ""
    #: Joins a qualified name.
    separator: str = "."
    #: Calls that import, by name: ``require``.
    import_calls: tuple[str, ...] = ()
    #: A scope also sees the names of the enclosing class (implicit ``this``).
    class_scope_is_visible: bool = False
    #: The variable that gets a call's result; used for calls that look like constructors.
    assigned: Callable[[Node, Source], str] | None = None
    #: A block's trailing comment is not part of the definition before it.
    ends_before_comments: bool = False


def signature(source: Source, start: int, end: int, comments: list[Node] | None = None) -> str:
    """The text before a definition's body, on one line, without `comments`."""
    if comments:
        pieces, at = [], start
        for comment in comments:
            pieces.append(source.data[at : comment.start_byte])
            at = comment.end_byte
        return _one_line(b"".join((*pieces, source.data[at:end])))
    if end - start <= _SIGNATURE_CHARS:  # nearly always
        raw = source.data[start:end].decode("utf-8", "replace")
        return " ".join(raw.split()).rstrip("{:=").rstrip()
    return _one_line(source.data[start:end])


def _one_line(data: bytes) -> str:
    raw = data[: 2 * _SIGNATURE_CHARS].decode("utf-8", "replace")
    text = " ".join(raw.split()).rstrip("{:=").rstrip()
    return text if len(text) <= _SIGNATURE_CHARS else text[: _SIGNATURE_CHARS - 1] + "…"


def first_line(text: str) -> str:
    """The first line with text, without comment markers."""
    for line in text.split("\n"):
        bare = line.strip()
        if bare[:1] in _DRESSED or bare.endswith("*/"):
            bare = _COMMENT_DRESS.sub("", bare).strip()
        if bare:
            return bare[:_DOC_CHARS]
    return ""


def comment_above(source: Source, node: Node) -> str:
    """The first line of the comment that ends on the line before `node`."""
    found = None
    line = node.start_point[0]
    before = node.prev_sibling
    while before is not None and "comment" in before.type and before.end_point[0] >= line - 1:
        found, line = before, before.start_point[0]
        if b"\n" in source.data[before.start_byte : before.end_byte].rstrip():
            break
        before = before.prev_sibling
    return first_line(source.text(found)) if found is not None else ""


def unquote(text: str) -> str:
    return text.strip().strip("\"'`<>")


def has_child(node: Node, kind: str) -> bool:
    return any(child.type == kind for child in node.children)
