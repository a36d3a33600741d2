"""What a call calls, and how certain that is.

The confidence is the probability that the target is right, given the rule that found it. The
figures come from the hand-labelled calls in tests/unit/graph; `impact` follows 0.8 and above.
"""

from __future__ import annotations

import re

from substrate.graph.grammars import grammar_for
from substrate.graph.parse import CLASS_KINDS, Call, Facts, Links
from substrate.graph.resolve.builtin_names import BUILTINS, COMMON_METHODS
from substrate.graph.resolve.project_view import Definition
from substrate.graph.resolve.resolve_imports import FAMILIES
from substrate.graph.resolve.resolve_names import Entity, FileNames, Names, Target

SURE = 1.0
#: Through an import, a star import, a package.
IMPORTED = 0.95
SELF = 0.95
INHERITED = 0.9
TYPED = 0.85
#: C and Ruby: the only function of that name in the project.
ONLY_FUNCTION = 0.85
EXTERNAL = 0.95
BUILTIN = 0.95
#: The only method of that name in the project; the receiver's type is not known.
ONLY_METHOD = 0.6
#: Static analysis cannot tell.
UNKNOWN = 0.3

_SELF_NAMES = frozenset({"self", "this", "cls", "Self", "@"})
_SUPER = frozenset({"super", "super()"})
_PLAIN = re.compile(r"[\w.]+\Z")
_MADE = re.compile(r"(?:new)?([\w.]+)\(.*\)\Z")


class CallResolver:
    """The calls of one file."""

    def __init__(self, names: Names, file: FileNames, facts: Facts | Links) -> None:
        self.names = names
        self.file = file
        self.facts = facts
        self.symbols = facts.symbols
        grammar = grammar_for(facts.language)
        self.sees_class = grammar is not None and grammar.class_scope_is_visible
        self.builtins = BUILTINS.get(file.family, frozenset())
        self.types: dict[tuple[int, str], str] = {}
        for scope, variable, kind in facts.types:
            self.types.setdefault((scope, variable), kind)
        self.typed = {variable for _, variable in self.types}

    def resolve(self, call: Call) -> Target:
        receiver = call.receiver
        if not receiver:
            return self._bare(call)
        if not receiver.isidentifier():  # most are
            receiver = receiver.replace("::", ".").replace("->", ".")
        return self._method(call, receiver) or self._guess(call, receiver)

    # -- f() --------------------------------------------------------------------------------------

    def _bare(self, call: Call) -> Target:
        name = call.name
        if name == "super":
            return Target(None, "super", UNKNOWN)
        words = self.file.words
        if words is None or name in words:
            found = self._known(call, name)
            if found is not None:
                return found
        elif call.is_parameter:
            return Target(None, name, UNKNOWN)
        if name in self.builtins:
            return Target(None, f"builtins.{name}", BUILTIN)
        if self.file.family in ("c", "ruby"):
            key = (self.file.directory, self.file.family, name)
            if key not in self.names.global_functions:
                self.names.global_functions[key] = self._global_function(name)
            return self.names.global_functions[key]
        return Target(None, name, UNKNOWN)

    def _known(self, call: Call, name: str) -> Target | None:
        """What a name means according to the file itself."""
        nested = self._enclosing(call.scope, name)
        if nested is not None:
            return nested
        if call.is_parameter:
            return Target(None, name, UNKNOWN)
        index = self.file.by_local.get(name)
        if index is not None:
            return Target(self._own(index), "", SURE)
        entity = self.names.binding(self.file, name)
        if entity is not None:
            return self._from_import(entity, name)
        entity = self.names.starred(self.file, name) or self.names.sibling(self.file, name)
        if entity is not None and entity.symbol is not None:
            return Target(entity.symbol, "", IMPORTED)
        return None

    def _from_import(self, entity: Entity, name: str) -> Target:
        if entity.symbol is not None:
            return Target(entity.symbol, "", SURE)
        if entity.external:
            return Target(None, entity.external, EXTERNAL)
        # ``const f = require("./f"); f()`` calls the module's default export.
        for target in entity.module:
            hit = self.names.lookup(target, "default")
            if hit is not None and hit.symbol is not None:
                return Target(hit.symbol, "", INHERITED)
        return Target(None, name, UNKNOWN)

    def _enclosing(self, scope: int, name: str) -> Target | None:
        """Definitions inside enclosing functions, and members where `this` is implicit."""
        at = scope
        while at > 0:
            symbol = self.symbols[at]
            is_class = symbol.kind in CLASS_KINDS or symbol.kind == "namespace"
            if not is_class or at == scope or self.sees_class:
                index = self.file.by_local.get(f"{symbol.local}.{name}")
                if index is not None:
                    return Target(self._own(index), "", SURE)
                if is_class and self.sees_class:
                    hit = self.names.in_class(self._own(at), name)
                    if hit is not None and hit.symbol is not None:
                        return Target(hit.symbol, "", INHERITED)
            at = symbol.parent
        if self.sees_class and scope > 0:
            return self._outside_method(scope, name)
        return None

    def _outside_method(self, scope: int, name: str) -> Target | None:
        """``void Foo::bar() { baz(); }``: the class is elsewhere."""
        owner = self.symbols[scope].local.rpartition(".")[0]
        if not owner or self.symbols[scope].parent > 0:
            return None
        index = self.file.by_local.get(f"{owner}.{name}")
        if index is not None:
            return Target(self._own(index), "", SURE)
        above = self.names.class_named(self.file, owner)
        hit = self.names.in_class(above, name) if above is not None else None
        return Target(hit.symbol, "", INHERITED) if hit is not None and hit.symbol else None

    def _global_function(self, name: str) -> Target:
        candidates = [
            found
            for found in self.names.view.defining(name)
            if found.symbol.kind in ("function", "macro", "method", "class", "struct")
            and self._same_family(found)
        ]
        plain = [found for found in candidates if found.symbol.kind != "method"] or candidates
        if len(plain) == 1:
            return Target(plain[0], "", ONLY_FUNCTION if plain[0].symbol.parent == 0 else UNKNOWN)
        near = [f for f in plain if f.path.rpartition(b"/")[0] == self.file.directory]
        if len(near) == 1:
            return Target(near[0], "", ONLY_METHOD)
        return Target(None, name, UNKNOWN)

    # -- x.f() ------------------------------------------------------------------------------------

    def _method(self, call: Call, receiver: str) -> Target | None:
        first, _, rest = receiver.partition(".")
        if receiver in _SUPER:
            return self._inherited(call)
        if first in _SELF_NAMES or receiver.startswith("@"):
            return self._on_self(call, first, rest)
        typed = self._type_of(call.scope, receiver)
        if typed is not None:
            return self._on_type(call, typed)
        if _PLAIN.match(receiver):
            return self._on_name(call, receiver)
        made = _MADE.match(receiver)
        if made:
            owner = self.names.class_named(self.file, made[1])
            hit = self.names.in_class(owner, call.name) if owner is not None else None
            if hit is not None and hit.symbol is not None:
                return Target(hit.symbol, "", INHERITED)
        return None

    def _class_around(self, scope: int) -> Definition | None:
        at = scope
        while at > 0:
            symbol = self.symbols[at]
            if symbol.kind in CLASS_KINDS:
                return self._own(at)
            if symbol.parent <= 0 and "." in symbol.local:
                # An `impl` block or a method outside of its class.
                return self.names.class_named(self.file, symbol.local.rpartition(".")[0])
            at = symbol.parent
        return None

    def _inherited(self, call: Call) -> Target | None:
        around = self._class_around(call.scope)
        if around is None:
            return None
        for base in around.symbol.bases:
            above = self.names.class_named(self.file, base, around.symbol)
            hit = self.names.in_class(above, call.name) if above is not None else None
            if hit is not None and hit.symbol is not None:
                return Target(hit.symbol, "", INHERITED)
        return Target(None, f"super.{call.name}", UNKNOWN)

    def _on_self(self, call: Call, first: str, rest: str) -> Target | None:
        around = self._class_around(call.scope)
        if rest:
            return self._on_field(call, first, rest, around)
        if around is None:
            local = self.symbols[call.scope].local.rpartition(".")[0]
            index = self.file.by_local.get(f"{local}.{call.name}") if local else None
            return Target(self._own(index), "", SELF) if index is not None else None
        hit = self.names.in_class(around, call.name)
        if hit is None or hit.symbol is None:
            return None
        here = hit.symbol.path == self.file.path
        return Target(hit.symbol, "", SELF if here else INHERITED)

    def _on_field(
        self, call: Call, first: str, rest: str, around: Definition | None
    ) -> Target | None:
        """``self.store.read()``, where some method says ``self.store = Store()``."""
        for (scope, variable), kind in self.types.items():
            named = variable in (f"{first}.{rest}", rest)
            owner = self._class_around(scope) if named else None
            if owner is not None and owner == around:
                return self._on_type(call, kind)
        return None

    def _type_of(self, scope: int, variable: str) -> str | None:
        at = scope if variable in self.typed else -1
        while at >= 0:
            found = self.types.get((at, variable))
            if found is not None:
                return found
            at = self.symbols[at].parent
        return None

    def _on_type(self, call: Call, kind: str) -> Target | None:
        inside = self.symbols[call.scope] if call.scope else None
        entity = self.names.named(self.file, kind, inside)
        if entity is None:
            return None
        if entity.external:
            return Target(None, f"{entity.external}.{call.name}", TYPED)
        if entity.symbol is None or entity.symbol.symbol.kind not in CLASS_KINDS:
            return None
        hit = self.names.in_class(entity.symbol, call.name)
        if hit is None or hit.symbol is None:
            return None
        return Target(hit.symbol, "", TYPED)

    def _on_name(self, call: Call, receiver: str) -> Target | None:
        words = self.file.words
        if words is not None and receiver.partition(".")[0] not in words:
            return None  # a local variable, most often
        inside = self.symbols[call.scope] if call.scope else None
        entity = self.names.named(self.file, receiver, inside)
        if entity is None:
            return None
        if entity.external:
            return Target(None, f"{entity.external}.{call.name}", EXTERNAL)
        hit = self.names.member(entity, call.name)
        if hit is None and call.name == "new" and entity.symbol is not None:
            return Target(entity.symbol, "", INHERITED)  # Ruby's and Rust's constructors
        if hit is None:
            return None
        if hit.external:
            return Target(None, hit.external, EXTERNAL)
        if hit.symbol is None:
            return None
        return Target(hit.symbol, "", IMPORTED if entity.symbol is None else INHERITED)

    def _guess(self, call: Call, receiver: str) -> Target:
        name = call.name
        if name not in COMMON_METHODS and len(name) >= 3:
            key = (self.file.family, name)
            if key not in self.names.only_methods:
                self.names.only_methods[key] = self._only_method(name)
            only = self.names.only_methods[key]
            if only is not None:
                return Target(only, "", ONLY_METHOD)
        return Target(None, f"{receiver}.{name}", UNKNOWN)

    def _only_method(self, name: str) -> Definition | None:
        """The only method of that name in all files of the family; None if there are more."""
        only: Definition | None = None
        for found in self.names.view.defining(name):
            if found.symbol.kind == "method" and self._same_family(found):
                if only is not None:
                    return None
                only = found
        return only

    # -- helpers ----------------------------------------------------------------------------------

    def _own(self, index: int) -> Definition:
        return Definition(self.file.path, index, self.symbols[index])

    def _same_family(self, found: Definition) -> bool:
        other = self.names.view.outline(found.path)
        return other is not None and FAMILIES.get(other.language, "") == self.file.family
