"""Rust."""

from __future__ import annotations

from tree_sitter import Node

from substrate.graph.grammars.grammar import (
    Description,
    Grammar,
    RawImport,
    Source,
    comment_above,
    has_child,
)

_PATTERNS = (
    ("function", "(function_item name: (identifier) @n) @d"),
    ("function", "(function_signature_item name: (identifier) @n) @d"),
    ("struct", "(struct_item name: (type_identifier) @n) @d"),
    ("struct", "(union_item name: (type_identifier) @n) @d"),
    ("enum", "(enum_item name: (type_identifier) @n) @d"),
    ("trait", "(trait_item name: (type_identifier) @n) @d"),
    ("type", "(type_item name: (type_identifier) @n) @d"),
    ("constant", "(const_item name: (identifier) @n) @d"),
    ("constant", "(static_item name: (identifier) @n) @d"),
    ("namespace", "(mod_item name: (identifier) @n body: (_)) @d"),
    ("macro", "(macro_definition name: (identifier) @n) @d"),
    ("scope", "(impl_item type: (_) @n) @d"),
    ("import", "(use_declaration) @i"),
    ("import", "(mod_item !body) @i"),
    ("call", "(call_expression function: (identifier) @f) @c"),
    ("call", "(call_expression function: (scoped_identifier path: (_) @r name: (_) @f)) @c"),
    ("call", "(call_expression function: (field_expression value: (_) @r field: (_) @f)) @c"),
    ("macro_call", "(macro_invocation macro: (identifier) @f) @c"),
    ("new", "(struct_expression name: (type_identifier) @f) @c"),
    (
        "type_of",
        (
            "(let_declaration pattern: (identifier) @v value:"
            " (call_expression function: (scoped_identifier path: (identifier) @t)))"
        ),
    ),
    (
        "type_of",
        (
            "(let_declaration pattern: (identifier) @v value:"
            " (struct_expression name: (type_identifier) @t))"
        ),
    ),
    (
        "type_of",
        (
            "(parameter pattern: (identifier) @v"
            " type: [(type_identifier) @t (reference_type type: (type_identifier) @t)])"
        ),
    ),
)


def _describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    text = source.text(name).partition("<")[0].rpartition("::")[2]
    if kind == "scope":
        return Description("scope", text, is_scope_only=True)
    bases = []
    if kind == "trait":
        bounds = node.child_by_field_name("bounds")
        bases = [source.text(b) for b in bounds.named_children] if bounds is not None else []
    visibility = "public" if has_child(node, "visibility_modifier") else "private"
    body = node.child_by_field_name("body")
    return Description(kind, text, visibility, body, comment_above(source, node), bases)


def _imports(node: Node, source: Source) -> list[RawImport]:
    if node.type == "mod_item":
        name = node.child_by_field_name("name")
        text = source.text(name) if name is not None else ""
        return [RawImport(f"self::{text}", [], text, 1)]
    argument = node.child_by_field_name("argument")
    return _use(argument, "", source) if argument is not None else []


def _use(node: Node, prefix: str, source: Source) -> list[RawImport]:
    """``use a::{b, c as d, e::*};`` -> one import for each leaf."""
    if node.type == "scoped_use_list":
        path, items = node.child_by_field_name("path"), node.child_by_field_name("list")
        inner = _join(prefix, source.text(path)) if path is not None else prefix
        return _use(items, inner, source) if items is not None else []
    if node.type == "use_list":
        found: list[RawImport] = []
        for child in node.named_children:
            found += _use(child, prefix, source)
        return found
    if node.type == "use_wildcard":
        inner = source.text(node).removesuffix("*").removesuffix("::")
        return [RawImport(_join(prefix, inner), [("*", "*")])]
    alias = None
    if node.type == "use_as_clause":
        alias = node.child_by_field_name("alias")
        path = node.child_by_field_name("path")
        if path is None:
            return []
        node = path
    if "comment" in node.type:
        return []
    module, _, name = _join(prefix, source.text(node)).rpartition("::")
    if name == "self":
        module, _, name = module.rpartition("::")
    return [RawImport(module, [(name, source.text(alias) if alias is not None else name)])]


def _join(prefix: str, rest: str) -> str:
    return f"{prefix}::{rest}" if prefix and rest else prefix or rest


RUST = Grammar("tree_sitter_rust", _PATTERNS, _describe, _imports, separator="::")
