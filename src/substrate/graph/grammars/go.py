"""Go."""

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

_TYPE = "[(type_identifier) @t (pointer_type (type_identifier) @t)]"
_PATTERNS = (
    ("function", "(function_declaration name: (identifier) @n) @d"),
    ("method", "(method_declaration name: (field_identifier) @n) @d"),
    ("type", "(type_spec name: (type_identifier) @n) @d"),
    ("type", "(type_alias name: (type_identifier) @n) @d"),
    ("constant", "(source_file (const_declaration (const_spec name: (identifier) @n) @d))"),
    ("variable", "(source_file (var_declaration (var_spec name: (identifier) @n) @d))"),
    ("package", "(package_clause (package_identifier) @p)"),
    ("import", "(import_spec) @i"),
    ("call", "(call_expression function: (identifier) @f) @c"),
    (
        "call",
        (
            "(call_expression function: (selector_expression operand: (_) @r"
            " field: (field_identifier) @f)) @c"
        ),
    ),
    ("new", "(composite_literal type: (type_identifier) @f) @c"),
    ("new", "(composite_literal type: (qualified_type package: (_) @r name: (_) @f)) @c"),
    (
        "type_of",
        (
            "(short_var_declaration left: (expression_list . (identifier) @v)"
            " right: (expression_list . (composite_literal type: (type_identifier) @t)))"
        ),
    ),
    (
        "type_of",
        (
            "(short_var_declaration left: (expression_list . (identifier) @v)"
            " right: (expression_list . (unary_expression"
            " operand: (composite_literal type: (type_identifier) @t))))"
        ),
    ),
    ("type_of", f"(parameter_declaration name: (identifier) @v type: {_TYPE})"),
    ("type_of", f"(var_spec name: (identifier) @v type: {_TYPE})"),
)
_KINDS = {"struct_type": "struct", "interface_type": "interface"}


def _describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    text = source.text(name)
    visibility = "public" if text[:1].isupper() else "private"
    owner, bases = "", []
    if kind == "method":
        owner = _receiver_type(node, source)
    elif kind == "type":
        shape = node.child_by_field_name("type")
        if shape is not None:
            kind = _KINDS.get(shape.type, "type")
            bases = _embedded(shape, source)
    above = node.parent
    outer = above if above is not None and above.type.endswith("_declaration") else node
    return Description(
        kind, text, visibility, node.child_by_field_name("body"),
        comment_above(source, outer), bases, owner,
    )  # fmt: skip


def _receiver_type(node: Node, source: Source) -> str:
    receiver = node.child_by_field_name("receiver")
    text = source.text(receiver) if receiver is not None else ""
    return text.strip("()").rpartition(" ")[2].lstrip("*").partition("[")[0]


def _embedded(shape: Node, source: Source) -> list[str]:
    """Embedded structs provide their methods, like base classes."""
    found = []
    for fields in shape.named_children:
        for field in fields.named_children if fields.type == "field_declaration_list" else ():
            if field.type == "field_declaration" and field.child_by_field_name("name") is None:
                inner = field.child_by_field_name("type")
                if inner is not None:
                    found.append(source.text(inner).lstrip("*").partition("[")[0])
    return found


def _imports(node: Node, source: Source) -> list[RawImport]:
    path = node.child_by_field_name("path")
    if path is None:
        return []
    alias = node.child_by_field_name("name")
    name = source.text(alias) if alias is not None else ""
    module = unquote(source.text(path))
    if name == ".":
        return [RawImport(module, [("*", "*")])]
    return [RawImport(module, [], name if name != "_" else "")]


GO = Grammar("tree_sitter_go", _PATTERNS, _describe, _imports, root="source_file")
