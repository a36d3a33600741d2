"""JavaScript, and what TypeScript shares with it."""

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

_CALLABLE = "[(arrow_function) (function_expression) (generator_function)]"

SHARED_PATTERNS = (
    ("outer", "(export_statement declaration: (_)) @d"),
    ("function", "(function_declaration name: (identifier) @n) @d"),
    ("function", "(generator_function_declaration name: (identifier) @n) @d"),
    ("method", "(method_definition name: (_) @n) @d"),
    ("function", f"(variable_declarator name: (identifier) @n value: {_CALLABLE}) @d"),
    ("function", f"(pair key: (property_identifier) @n value: {_CALLABLE}) @d"),
    (
        "function",
        (
            "(assignment_expression left: (member_expression property: (property_identifier) @n)"
            f" right: {_CALLABLE}) @d"
        ),
    ),
    ("constant", "(program (lexical_declaration (variable_declarator name: (identifier) @n) @d))"),
    (
        "constant",
        (
            "(program (export_statement (lexical_declaration"
            " (variable_declarator name: (identifier) @n) @d)))"
        ),
    ),
    ("import", "(import_statement) @i"),
    ("import", "(export_statement source: (string)) @i"),
    ("call", "(call_expression function: [(identifier) (super)] @f) @c"),
    (
        "call",
        (
            "(call_expression function:"
            " (member_expression object: (_) @r property: (property_identifier) @f)) @c"
        ),
    ),
    ("new", "(new_expression constructor: (identifier) @f) @c"),
    (
        "new",
        (
            "(new_expression constructor:"
            " (member_expression object: (_) @r property: (property_identifier) @f)) @c"
        ),
    ),
    (
        "type_of",
        (
            "(variable_declarator name: (identifier) @v"
            " value: (new_expression constructor: (identifier) @t))"
        ),
    ),
    (
        "type_of",
        (
            "(assignment_expression left: (member_expression object: (this) @o"
            " property: (property_identifier) @v)"
            " right: (new_expression constructor: (identifier) @t))"
        ),
    ),
    ("export", '(export_statement "default" value: (identifier) @l) @x'),
    (
        "export",
        '(export_statement "default" declaration: (function_declaration name: (identifier) @l)) @x',
    ),
    ("export", "(export_specifier name: (_) @l alias: (_) @x)"),
    (
        "export",
        (
            "(assignment_expression left: (member_expression object: (identifier) @o) @x"
            ' right: (identifier) @l (#eq? @o "module"))'
        ),
    ),
)
JSX_PATTERNS = (
    ("jsx", "(jsx_opening_element name: (identifier) @f) @c"),
    ("jsx", "(jsx_self_closing_element name: (identifier) @f) @c"),
)
_PATTERNS = (
    *SHARED_PATTERNS,
    *JSX_PATTERNS,
    ("class", "(class_declaration name: (identifier) @n) @d"),
    ("class", "(variable_declarator name: (identifier) @n value: (class)) @d"),
    ("export", '(export_statement "default" (class_declaration name: (identifier) @l)) @x'),
    ("method", f"(field_definition property: (_) @n value: {_CALLABLE}) @d"),
)


def describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    text = source.text(name)
    body_of = node.child_by_field_name("value") or node.child_by_field_name("right") or node
    body = body_of.child_by_field_name("body")
    bases = [source.text(base) for base in _heritage(body_of)] if kind == "class" else []
    if kind == "constant" and not text.isupper():
        kind = "variable"
    statement = node
    while statement.parent is not None and statement.parent.type in (
        *("lexical_declaration", "variable_declaration", "export_statement"),
        "expression_statement",
    ):
        statement = statement.parent
    doc = comment_above(source, statement)
    return Description(kind, text, _visibility(node, text, source), body, doc, bases)


def _visibility(node: Node, text: str, source: Source) -> str:
    if text.startswith(("#", "_")):
        return "private"
    for child in node.children[:3]:
        if child.type == "accessibility_modifier":
            return source.text(child)
    return "public"


def _heritage(node: Node) -> list[Node]:
    found = []
    for child in node.children:
        if child.type in ("class_heritage", "extends_type_clause"):
            for part in child.named_children:
                clause = part.type in ("extends_clause", "implements_clause")
                found += [
                    piece
                    for piece in (part.named_children if clause else [part])
                    if piece.type in ("identifier", "type_identifier", "member_expression")
                ]
    return found


def imports(node: Node, source: Source) -> list[RawImport]:
    if node.type == "call_expression":
        return _required(node, source)
    origin = node.child_by_field_name("source")
    if origin is None:
        return []
    module = unquote(source.text(origin))
    if node.type == "export_statement":
        names = [_pair(spec, source) for spec in _below(node, "export_specifier")]
        return [RawImport(module, names or [("*", "*")])]
    names, alias = [], ""
    for clause in node.named_children:
        if clause.type != "import_clause":
            continue
        for part in clause.named_children:
            if part.type == "identifier":
                names.append(("default", source.text(part)))
            elif part.type == "namespace_import":
                alias = source.text(part.named_children[0])
            elif part.type == "named_imports":
                names += [_pair(spec, source) for spec in _below(part, "import_specifier")]
    return [RawImport(module, names, alias)]


def _pair(spec: Node, source: Source) -> tuple[str, str]:
    name, alias = spec.child_by_field_name("name"), spec.child_by_field_name("alias")
    text = source.text(name) if name is not None else ""
    return text, source.text(alias) if alias is not None else text


def _below(node: Node, kind: str) -> list[Node]:
    found = []
    for child in node.named_children:
        if child.type == kind:
            found.append(child)
        elif child.type == "export_clause":
            found += _below(child, kind)
    return found


def _required(node: Node, source: Source) -> list[RawImport]:
    """``const {a, b: c} = require("./x")``."""
    arguments = node.child_by_field_name("arguments")
    first = arguments.named_child(0) if arguments is not None else None
    if first is None or first.type != "string":
        return []
    module = unquote(source.text(first))
    above = node.parent
    if above is None or above.type != "variable_declarator":
        return [RawImport(module)]
    target = above.child_by_field_name("name")
    if target is None or target.type == "identifier":
        return [RawImport(module, [], source.text(target) if target is not None else "")]
    names = []
    for child in target.named_children:
        if child.type == "shorthand_property_identifier_pattern":
            names.append((source.text(child), source.text(child)))
        elif child.type == "pair_pattern":
            key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            if key is not None and value is not None:
                names.append((source.text(key), source.text(value)))
    return [RawImport(module, names)]


JAVASCRIPT = Grammar(
    "tree_sitter_javascript",
    _PATTERNS,
    describe,
    imports,
    root="program",
    import_calls=("require", "import"),
)
