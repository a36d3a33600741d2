"""C++."""

from __future__ import annotations

from substrate.graph.grammars.c import SHARED_PATTERNS, describe, imports
from substrate.graph.grammars.grammar import Grammar

_PATTERNS = (
    ("outer", "(template_declaration) @d"),
    *SHARED_PATTERNS,
    ("class", "(class_specifier name: (type_identifier) @n body: (_)) @d"),
    ("namespace", "(namespace_definition name: (_) @n) @d"),
    ("type", "(alias_declaration name: (type_identifier) @n) @d"),
    ("call", "(call_expression function: (qualified_identifier scope: (_) @r name: (_) @f)) @c"),
    ("new", "(new_expression type: (type_identifier) @f) @c"),
    (
        "type_of",
        (
            "(declaration type: (type_identifier) @t"
            " declarator: [(identifier) @v (init_declarator declarator: (identifier) @v)"
            " (pointer_declarator declarator: (identifier) @v)])"
        ),
    ),
    (
        "type_of",
        (
            "(parameter_declaration type: (type_identifier) @t declarator: [(identifier) @v"
            " (reference_declarator (identifier) @v)"
            " (pointer_declarator declarator: (identifier) @v)])"
        ),
    ),
)

CPP = Grammar(
    "tree_sitter_cpp",
    _PATTERNS,
    describe,
    imports,
    separator="::",
    class_scope_is_visible=True,
)
