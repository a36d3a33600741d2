"""Java."""

from __future__ import annotations

from tree_sitter import Node

from substrate.graph.grammars.grammar import Description, Grammar, RawImport, Source, comment_above

_PATTERNS = (
    ("class", "(class_declaration name: (identifier) @n) @d"),
    ("class", "(record_declaration name: (identifier) @n) @d"),
    ("interface", "(interface_declaration name: (identifier) @n) @d"),
    ("interface", "(annotation_type_declaration name: (identifier) @n) @d"),
    ("enum", "(enum_declaration name: (identifier) @n) @d"),
    ("method", "(method_declaration name: (identifier) @n) @d"),
    ("constructor", "(constructor_declaration name: (identifier) @n) @d"),
    ("constant", "(field_declaration declarator: (variable_declarator name: (identifier) @n)) @d"),
    ("package", "(package_declaration (_) @p)"),
    ("import", "(import_declaration) @i"),
    ("call", "(method_invocation !object name: (identifier) @f) @c"),
    ("call", "(method_invocation object: (_) @r name: (identifier) @f) @c"),
    ("new", "(object_creation_expression type: (type_identifier) @f) @c"),
    (
        "type_of",
        (
            "(local_variable_declaration type: (type_identifier) @t"
            " declarator: (variable_declarator name: (identifier) @v))"
        ),
    ),
    (
        "type_of",
        (
            "(field_declaration type: (type_identifier) @t"
            " declarator: (variable_declarator name: (identifier) @v))"
        ),
    ),
    ("type_of", "(formal_parameter type: (type_identifier) @t name: (identifier) @v)"),
)


def _describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    first = node.child(0)
    modifiers = source.text(first) if first is not None and first.type == "modifiers" else ""
    words = set(modifiers.split())
    if kind == "constant" and not {"static", "final"} <= words:
        return None
    visibility = next((w for w in ("public", "protected", "private") if w in words), "package")
    bases = _bases(node, source) if kind in ("class", "interface", "enum") else []
    doc = comment_above(source, node)
    body = node.child_by_field_name("body")
    return Description(kind, source.text(name), visibility, body, doc, bases)


def _bases(node: Node, source: Source) -> list[str]:
    found = []
    for child in node.children:
        if child.type in ("superclass", "super_interfaces", "extends_interfaces"):
            for part in child.named_children:
                pieces = part.named_children if part.type == "type_list" else [part]
                found += [source.text(piece).partition("<")[0] for piece in pieces]
    return found


def _imports(node: Node, source: Source) -> list[RawImport]:
    text = source.text(node).removeprefix("import").strip().rstrip(";").strip()
    is_static = text.startswith("static ")
    name = "".join(text.removeprefix("static ").split())
    module, _, last = name.rpartition(".")
    return [RawImport(module, [(last, last)], "", int(is_static))]


JAVA = Grammar("tree_sitter_java", _PATTERNS, _describe, _imports, class_scope_is_visible=True)
