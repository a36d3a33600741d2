"""TypeScript, with and without JSX."""

from __future__ import annotations

from substrate.graph.grammars.grammar import Grammar
from substrate.graph.grammars.javascript import JSX_PATTERNS, SHARED_PATTERNS, describe, imports

_CALLABLE = "[(arrow_function) (function_expression)]"
_PATTERNS = (
    *SHARED_PATTERNS,
    ("class", "(class_declaration name: (type_identifier) @n) @d"),
    ("class", "(abstract_class_declaration name: (type_identifier) @n) @d"),
    ("export", '(export_statement "default" (class_declaration name: (type_identifier) @l)) @x'),
    ("interface", "(interface_declaration name: (type_identifier) @n) @d"),
    ("type", "(type_alias_declaration name: (type_identifier) @n) @d"),
    ("enum", "(enum_declaration name: (identifier) @n) @d"),
    ("namespace", "(internal_module name: (identifier) @n) @d"),
    ("function", "(function_signature name: (identifier) @n) @d"),
    ("method", "(method_signature name: (_) @n) @d"),
    ("method", "(abstract_method_signature name: (_) @n) @d"),
    ("method", f"(public_field_definition name: (_) @n value: {_CALLABLE}) @d"),
    (
        "type_of",
        (
            "(required_parameter pattern: (identifier) @v"
            " type: (type_annotation (type_identifier) @t))"
        ),
    ),
    (
        "type_of",
        "(variable_declarator name: (identifier) @v type: (type_annotation (type_identifier) @t))",
    ),
    (
        "type_of",
        (
            "(public_field_definition name: (property_identifier) @v"
            " type: (type_annotation (type_identifier) @t))"
        ),
    ),
)

TYPESCRIPT = Grammar(
    "tree_sitter_typescript",
    _PATTERNS,
    describe,
    imports,
    function="language_typescript",
    root="program",
    import_calls=("require", "import"),
)
TSX = TYPESCRIPT._replace(patterns=(*_PATTERNS, *JSX_PATTERNS), function="language_tsx")
