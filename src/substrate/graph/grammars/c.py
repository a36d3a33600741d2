"""C, and what C++ shares with it."""

from __future__ import annotations

from tree_sitter import Node

from substrate.graph.grammars.grammar import (
    Description,
    Grammar,
    RawImport,
    Source,
    comment_above,
)

SHARED_PATTERNS = (
    ("outer", "(type_definition type: (_ body: (_))) @d"),
    ("function", "(function_definition) @d"),
    ("struct", "(struct_specifier name: (type_identifier) @n body: (_)) @d"),
    ("struct", "(union_specifier name: (type_identifier) @n body: (_)) @d"),
    ("enum", "(enum_specifier name: (type_identifier) @n body: (_)) @d"),
    ("type", "(type_definition declarator: (type_identifier) @n) @d"),
    ("constant", "(preproc_def name: (identifier) @n) @d"),
    ("macro", "(preproc_function_def name: (identifier) @n) @d"),
    ("import", "(preproc_include) @i"),
    ("call", "(call_expression function: (identifier) @f) @c"),
    ("call", "(call_expression function: (field_expression argument: (_) @r field: (_) @f)) @c"),
)
_NAMES = (
    *("identifier", "field_identifier", "qualified_identifier", "destructor_name"),
    *("operator_name", "type_identifier", "operator_cast"),
)


def describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    owner = ""
    if kind == "function":
        name = _declared(node)
        if name is None:
            return None
        text = "".join(source.text(name).split())
        owner, _, text = text.rpartition("::")
        owner = owner.partition("<")[0].rpartition("::")[2]
        kind = "method" if owner or name.type == "field_identifier" else "function"
    else:
        assert name is not None
        text = source.text(name)
    body = node.child_by_field_name("body")
    outer = node.parent if node.parent is not None and _wraps(node.parent) else node
    is_static = kind == "function" and any(
        child.type == "storage_class_specifier" and source.text(child) == "static"
        for child in node.children[:3]
    )
    return Description(
        kind, text, "private" if is_static else "public", body,
        comment_above(source, outer), bases(node, source), owner,
    )  # fmt: skip


def _wraps(node: Node) -> bool:
    return node.type in ("template_declaration", "type_definition", "declaration")


def _declared(node: Node) -> Node | None:
    """The name inside ``static char *(*name(int))[3]``: down the declarators."""
    inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type not in _NAMES:
        below = inner.child_by_field_name("declarator")
        if below is None:
            below = next((c for c in inner.named_children if "declarator" in c.type), None)
            if below is None:
                below = next((c for c in inner.named_children if c.type in _NAMES), None)
        inner = below
    return inner


def bases(node: Node, source: Source) -> list[str]:
    found = []
    for child in node.children:
        if child.type == "base_class_clause":
            found += [
                source.text(part).partition("<")[0]
                for part in child.named_children
                if part.type in ("type_identifier", "qualified_identifier", "template_type")
            ]
    return found


def imports(node: Node, source: Source) -> list[RawImport]:
    path = node.child_by_field_name("path")
    if path is None:
        return []
    text = source.text(path).strip()
    return [RawImport(text.strip('"<>'), [("*", "*")], "", int(text.startswith('"')))]


C = Grammar("tree_sitter_c", SHARED_PATTERNS, describe, imports)
