"""Ruby."""

from __future__ import annotations

from tree_sitter import Node

from substrate.graph.grammars.grammar import (
    Description,
    Grammar,
    RawImport,
    Source,
    comment_above,
    unquote,
)

_PATTERNS = (
    ("method", "(method name: (_) @n) @d"),
    ("method", "(singleton_method name: (_) @n) @d"),
    ("class", "(class name: (_) @n) @d"),
    ("namespace", "(module name: (_) @n) @d"),
    ("constant", "(assignment left: (constant) @n) @d"),
    ("call", "(call !receiver method: [(identifier) (constant)] @f) @c"),
    ("call", "(call receiver: (_) @r method: (_) @f) @c"),
    (
        "type_of",
        (
            "(assignment left: (identifier) @v"
            ' right: (call receiver: (constant) @t method: (identifier) @m (#eq? @m "new")))'
        ),
    ),
)


def _describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    text = source.text(name).rpartition("::")[2]
    if kind == "constant" and node.parent is not None and node.parent.type == "method":
        return None
    bases = []
    if kind == "class":
        above = node.child_by_field_name("superclass")
        bases = [source.text(above).lstrip("< ")] if above is not None else []
    visibility = "private" if text.startswith("_") else "public"
    body = node.child_by_field_name("body")
    return Description(kind, text, visibility, body, comment_above(source, node), bases)


def _imports(node: Node, source: Source) -> list[RawImport]:
    method, arguments = node.child_by_field_name("method"), node.child_by_field_name("arguments")
    first = arguments.named_child(0) if arguments is not None else None
    if method is None or first is None or first.type != "string":
        return []
    relative = source.text(method) == "require_relative"
    return [RawImport(unquote(source.text(first)), [("*", "*")], "", int(relative))]


RUBY = Grammar(
    "tree_sitter_ruby",
    _PATTERNS,
    _describe,
    _imports,
    separator="::",
    import_calls=("require", "require_relative", "load"),
    class_scope_is_visible=True,
)
