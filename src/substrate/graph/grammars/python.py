"""Python."""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import normalize

from tree_sitter import Node

from substrate.graph.grammars.grammar import Description, Grammar, RawImport, Source, first_line

_OPENING = re.compile(rb"[rRuUbBfF]*(\"\"\"|'''|\"|')")
#: A docstring may be pages long, but only its first line is kept.
_DOC_PROBE_BYTES = 1000
_SIMPLE_FROM = re.compile(
    r"from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+((?:\w+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*"
    r"\w+(?:[ \t]+as[ \t]+\w+)?)[ \t]*\Z"
)
_SIMPLE_IMPORT = re.compile(r"import[ \t]+(\w+(?:\.\w+)*)\Z")
_SIMPLE_NAME = re.compile(r"[\w.]+\Z")

_PATTERNS = (
    ("outer", "(decorated_definition) @d"),
    ("function", "(function_definition name: (identifier) @n) @d"),
    ("class", "(class_definition name: (identifier) @n) @d"),
    ("type", "(module (type_alias_statement left: (type (identifier) @n)) @d)"),
    ("constant", "(module (expression_statement (assignment left: (identifier) @n) @d))"),
    ("import", "[(import_statement) (import_from_statement) (future_import_statement)] @i"),
    ("call", "(call function: (identifier) @f) @c"),
    ("call", "(call function: (attribute object: (_) @r attribute: (identifier) @f)) @c"),
    ("decorator", "(decorator (identifier) @f) @c"),
    ("decorator", "(decorator (attribute object: (_) @r attribute: (identifier) @f)) @c"),
    ("type_of", "(typed_parameter (identifier) @v type: (type (identifier) @t))"),
    ("type_of", "(typed_default_parameter name: (identifier) @v type: (type (identifier) @t))"),
)


def _describe(kind: str, node: Node, name: Node | None, source: Source) -> Description | None:
    assert name is not None
    text = identifier(source.text(name))
    visibility = "private" if text.startswith("_") and not text.endswith("__") else "public"
    if kind == "constant":
        bare = text.strip("_")
        kind = "constant" if bare.upper() == bare and bare else "variable"
        return Description(kind, text, visibility)
    body = node.child_by_field_name("body")
    docstring = _docstring(body, source) if body is not None else ""
    bases: list[str] = []
    if kind == "class":
        arguments = node.child_by_field_name("superclasses")
        for child in arguments.named_children if arguments is not None else ():
            base = source.text(child.child_by_field_name("value") or child)
            base = base.partition("[")[0]
            if child.type != "keyword_argument" and _SIMPLE_NAME.match(base):
                bases.append(base)
    return Description(kind, text, visibility, body, docstring, bases)


def _docstring(body: Node, source: Source) -> str:
    opening = _OPENING.match(source.data, body.start_byte)
    if opening is None:
        return ""
    first = body.named_child(0)
    if first is None or first.type != "expression_statement":
        return ""
    string = first.named_child(0)
    if string is None or string.type != "string":
        return ""
    start, end = opening.end(), string.end_byte - len(opening[1])
    if end - start > _DOC_PROBE_BYTES:
        end = start + _DOC_PROBE_BYTES
    text = source.data[start:end]
    line = text.lstrip().partition(b"\n")[0]  # nearly always the right line
    return first_line(line.decode("utf-8", "ignore")) or first_line(text.decode("utf-8", "ignore"))


def identifier(text: str) -> str:
    """An identifier as Python compares it."""
    return text if text.isascii() else normalize("NFKC", text)


def _imports(node: Node, source: Source) -> list[RawImport]:
    return _simple_import(source.text(node)) or _other_import(node, source)


@lru_cache(maxsize=4096)  # many files begin alike
def _simple_import(text: str) -> list[RawImport] | None:
    """Parse nine of ten imports by their text alone. Callers must not change the cached result."""
    plain = _SIMPLE_IMPORT.match(text)
    if plain is not None:
        return [RawImport(identifier(plain[1]))]
    simple = _SIMPLE_FROM.match(text)
    if simple is None:
        return None
    origin = identifier(simple[1])
    dots = len(origin) - len(origin.lstrip("."))
    pairs = [part.split() for part in simple[2].split(",")]
    taken = [(identifier(pair[0]), identifier(pair[-1])) for pair in pairs]
    return [RawImport(origin[dots:], taken, "", dots)]


def _other_import(node: Node, source: Source) -> list[RawImport]:
    if node.type == "import_statement":
        return [_plain(child, source) for child in node.children_by_field_name("name")]
    if node.type == "future_import_statement":
        return [RawImport("__future__", _names(node, source))]
    module = node.child_by_field_name("module_name")
    text = _dotted(source.text(module)) if module is not None else ""
    level = len(text) - len(text.lstrip("."))
    if any(child.type == "wildcard_import" for child in node.named_children):
        names = [("*", "*")]
    else:
        names = _names(node, source)
    return [RawImport(text[level:], names, "", level)]


def _plain(node: Node, source: Source) -> RawImport:
    if node.type == "aliased_import":
        name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
        assert name is not None
        assert alias is not None
        return RawImport(_dotted(source.text(name)), [], identifier(source.text(alias)))
    return RawImport(_dotted(source.text(node)))


def _names(node: Node, source: Source) -> list[tuple[str, str]]:
    names = []
    for child in node.children_by_field_name("name"):
        plain = _plain(child, source)
        names.append((plain.module, plain.alias or plain.module))
    return names


def _dotted(text: str) -> str:
    """``a . b`` and ``.. a`` may contain blanks, line ends and backslashes."""
    return identifier(re.sub(r"[\s\\]+", "", text))


def _assigned(call: Node, source: Source) -> str:
    above = call.parent
    if above is None or above.type not in ("assignment", "as_pattern"):
        return ""
    if above.type == "as_pattern":  # `with Store() as x`: nearly always the store itself
        target = above.child_by_field_name("alias")
        left = target.named_child(0) if target is not None else None
    else:
        left = above.child_by_field_name("left")
    return (
        source.text(left) if left is not None and left.type in ("identifier", "attribute") else ""
    )


PYTHON = Grammar(
    "tree_sitter_python",
    _PATTERNS,
    _describe,
    _imports,
    root="module",
    ends_before_comments=True,
    assigned=_assigned,
)
