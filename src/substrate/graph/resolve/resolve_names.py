"""What a name means in a file: defined there, imported, re-exported, or inherited."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from substrate.graph.grammars import grammar_for
from substrate.graph.index import path_id
from substrate.graph.parse import CLASS_KINDS, Import, Outline, Symbol
from substrate.graph.resolve.project_view import Definition, ProjectView
from substrate.graph.resolve.resolve_imports import FAMILIES, PythonModules, find_module

#: How many levels of re-exports and base classes are followed.
_DEEPEST = 8
#: The most cached answers, and cached names of files: about 10 KB per file.
_MOST_KEPT = 50_000
_MOST_FILES = 4_000


Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Entity(Struct, frozen=True, gc=False):
    """What a name means: one of a symbol, some files (a module), something external."""

    symbol: Definition | None = None
    module: tuple[bytes, ...] = ()
    external: str = ""


class Target(Struct, frozen=True, gc=False):
    """What a call calls: exactly one of the first two is set."""

    symbol: Definition | None
    external: str
    confidence: float


class FileNames:
    """The names of one file."""

    def __init__(self, path: bytes, outline: Outline) -> None:
        self.path = path
        self.directory = path.rpartition(b"/")[0]
        self.path_id = path_id(path)
        self.outline = outline
        self.family = FAMILIES.get(outline.language, "")
        self.by_local: dict[str, int] = {}
        for index, symbol in enumerate(outline.symbols):
            if index:
                self.by_local.setdefault(symbol.local, index)
        #: Bound name -> the import and the name it had there ("" for the module itself).
        self.bound: dict[str, tuple[Import, str]] = {}
        self.stars: list[Import] = []
        #: ``import a.b.c`` binds `a`, and is meant by ``a.b.c.f()``.
        self.dotted: dict[str, Import] = {}
        for found in outline.imports:
            self._bind(found)
        #: Every name that can have a meaning here without other files; None if a star import, a
        #: package's other files or an inherited scope can add any name.
        self.words: set[str] | None = None
        grammar = grammar_for(outline.language)
        sees_class = grammar is not None and grammar.class_scope_is_visible
        if not self.stars and not sees_class and self.family not in ("go", "java"):
            self.words = {local.rpartition(".")[2] for local in self.by_local}
            self.words.update(self.bound)
            self.words.update(module.partition(".")[0] for module in self.dotted)

    def _bind(self, found: Import) -> None:
        bound = self.bound
        for name, alias in found.names:
            if name == "*":
                self.stars.append(found)
            elif alias not in bound:
                bound[alias] = (found, name)
        if found.names and not found.alias:
            return
        if found.alias:
            bound.setdefault(found.alias, (found, ""))
        elif self.family == "go":
            bound.setdefault(found.module.rpartition("/")[2], (found, ""))
        elif "." in found.module and self.family == "python":
            self.dotted.setdefault(found.module, found)
        else:
            bound.setdefault(found.module, (found, ""))

    def symbol_id(self, index: int) -> str:
        return self.path_id[:10] + self.outline.symbols[index].key  # `symbol_id`, inlined


class Names:
    """Looks names up across files, and caches the results."""

    def __init__(self, view: ProjectView) -> None:
        self.view = view
        self._files: dict[bytes, FileNames | None] = {}
        #: Of C and Ruby, by directory, family and name.
        self.global_functions: dict[tuple[bytes, str, str], Target] = {}
        #: By family and name; None if there are several, or none.
        self.only_methods: dict[tuple[str, str], Definition | None] = {}
        self._bindings: dict[tuple[bytes, str], Entity | None] = {}
        self._submodules: dict[tuple[bytes, str, int], list[bytes]] = {}
        self._modules: dict[tuple[bytes, str, int, str], list[bytes]] = {}
        self._python = PythonModules(view)
        self._taken: dict[tuple[bytes, str, int], Entity | None] = {}

    def file(self, path: bytes) -> FileNames | None:
        try:
            return self._files[path]
        except KeyError:
            return self.file_of(path, self.view.outline(path))

    def file_of(self, path: bytes, outline: Outline | None) -> FileNames | None:
        """The same, for a caller that already has the outline."""
        if path in self._files:
            return self._files[path]
        is_source = outline is not None and outline.symbols
        made = FileNames(path, outline) if outline and is_source else None
        if len(self._files) >= _MOST_FILES:
            self._files.clear()
        self._files[path] = made
        return made

    def module_of(self, file: FileNames, found: Import) -> list[bytes]:
        # What the module means depends on the directory only; Rust's also on the file and name.
        where = file.path if file.family == "rust" else file.directory
        name = found.names[0][0] if found.names and file.family in ("rust", "java") else ""
        key = (where, found.module, found.level, name)
        if key not in self._modules:
            if file.family == "python":
                hits = self._python.find(file.path, found.module, found.level)
            else:
                hits = find_module(self.view, file.path, file.family, found)
            _keep(self._modules, key, hits)
        return self._modules[key]

    # -- names of a file, seen from outside -------------------------------------------------------

    def lookup(self, path: bytes, name: str, depth: int = 0) -> Entity | None:
        """`name` as a member of the module at `path`."""
        file = self.file(path)
        if file is None or depth > _DEEPEST:
            return None
        if name == "default":
            name = next((inner for out, inner in file.outline.exports if out == name), name)
        index = file.by_local.get(name)
        if index is None:
            index = self._exported(file, name)
        if index is not None:
            return Entity(Definition(path, index, file.outline.symbols[index]))
        bound = self.binding(file, name, depth + 1)
        if bound is not None and not bound.external:
            return bound
        through = self._through_stars(file, name, depth) if file.stars else None
        return through or self._submodule(path, name) or bound

    def _through_stars(self, file: FileNames, name: str, depth: int) -> Entity | None:
        """Cached: headers that include headers lead to the same files in very many ways."""
        key = (file.path, name, depth)
        try:
            return self._taken[key]
        except KeyError:
            pass
        hits = (
            self.lookup(target, name, depth + 1)
            for star in file.stars
            for target in self.module_of(file, star)
        )
        found = next((hit for hit in hits if hit is not None), None)
        _keep(self._taken, key, found)
        return found

    @staticmethod
    def _exported(file: FileNames, name: str) -> int | None:
        for out, inner in file.outline.exports:
            if out == name and inner in file.by_local:
                return file.by_local[inner]
        if file.family == "rust":  # `use a::B` may name an item of an inline module of `a`
            hits = [i for local, i in file.by_local.items() if local.endswith("." + name)]
            return hits[0] if len(hits) == 1 else None
        return None

    def _submodule(self, path: bytes, name: str) -> Entity | None:
        directory, _, base = path.rpartition(b"/")
        if base not in (b"__init__.py", b"__init__.pyi"):
            return None
        inner = directory + b"/" + name.encode("utf-8", "surrogatepass")
        for ending in (b".py", b"/__init__.py"):
            if self.view.has(inner + ending):
                return Entity(module=(inner + ending,))
        return None

    # -- names of a file, seen from inside --------------------------------------------------------

    def binding(self, file: FileNames, name: str, depth: int = 0) -> Entity | None:
        """What an import of the file bound to `name`."""
        if name not in file.bound or depth > _DEEPEST:
            return None
        if depth:  # the depth limit may have cut this answer: do not cache it
            return self._bound(file, name, depth)
        key = (file.path, name)
        if key not in self._bindings:
            _keep(self._bindings, key, self._bound(file, name, 0))
        return self._bindings[key]

    def _bound(self, file: FileNames, name: str, depth: int) -> Entity | None:
        found, original = file.bound[name]
        targets = self.module_of(file, found)
        if not targets:
            return self._unfound(file, found, original)
        if not original:
            return Entity(module=tuple(targets))
        if file.family == "rust":
            return self._rust_item(targets[0], found, original, depth)
        for target in targets:
            hit = self.lookup(target, original, depth + 1)
            if hit is not None:
                return hit
        if original == "default":
            return Entity(module=tuple(targets))
        return None

    def _rust_item(self, target: bytes, found: Import, original: str, depth: int) -> Entity | None:
        hit = self.lookup(target, original, depth + 1)
        stem = target.removesuffix(b"/mod.rs").removesuffix(b".rs").rpartition(b"/")[2]
        if hit is None and stem == original.encode("utf-8", "surrogatepass"):
            return Entity(module=(target,))
        return hit

    def _unfound(self, file: FileNames, found: Import, original: str) -> Entity:
        """External, unless the name is a module of the project in a package without a file."""
        if file.family == "python" and original:
            module = f"{found.module}.{original}" if found.module else original
            key = (file.directory, module, found.level)
            if key not in self._submodules:
                hits = self._python.find(file.path, module, found.level)
                _keep(self._submodules, key, hits)
            hits = self._submodules[key]
            if hits:
                return Entity(module=tuple(hits))
        joint = "::" if file.family == "rust" else "."
        dots = "." * found.level if file.family == "python" else ""
        text = dots + found.module
        return Entity(
            external=f"{text}{joint}{original}" if original and text else text or original
        )

    def member(self, entity: Entity, name: str) -> Entity | None:
        """``entity.name``."""
        if entity.external:
            return Entity(external=f"{entity.external}.{name}")
        if entity.symbol is not None:
            return self.in_class(entity.symbol, name)
        for target in entity.module:
            hit = self.lookup(target, name)
            if hit is not None:
                return hit
        return None

    def in_class(self, owner: Definition, name: str, depth: int = 0) -> Entity | None:
        """A member of a class, or of one that it inherits from."""
        file = self.file(owner.path)
        if file is None or depth > _DEEPEST:
            return None
        index = file.by_local.get(f"{owner.symbol.local}.{name}")
        if index is not None:
            return Entity(Definition(owner.path, index, file.outline.symbols[index]))
        if file.family in ("go", "c", "rust"):
            # Methods may be in other files than their type.
            local = f"{owner.symbol.name}.{name}"
            directory = owner.path.rpartition(b"/")[0] if file.family == "go" else None
            for other in self.view.defining(name, directory):
                if other.symbol.local == local and _near(other.path, owner.path, file.family):
                    return Entity(other)
        for base in owner.symbol.bases:
            above = self.class_named(file, base, owner.symbol)
            if above is not None and above != owner:
                hit = self.in_class(above, name, depth + 1)
                if hit is not None:
                    return hit
        return None

    def class_named(
        self, file: FileNames, text: str, inside: Symbol | None = None
    ) -> Definition | None:
        """The project's class that `text` (``Base``, ``mod.Base``) means in a file."""
        entity = self.named(file, text.replace("::", "."), inside)
        symbol = entity.symbol if entity is not None else None
        return symbol if symbol is not None and symbol.symbol.kind in CLASS_KINDS else None

    def named(self, file: FileNames, dotted: str, inside: Symbol | None = None) -> Entity | None:
        """What a dotted name means at the top level of a file, or in the scope of `inside`."""
        if dotted in file.dotted:
            return Entity(module=tuple(self.module_of(file, file.dotted[dotted])))
        first, *rest = dotted.split(".")
        entity = self._first_name(file, first, inside)
        if entity is None:
            return self._dotted_module(file, dotted)
        for part in rest:
            if entity is None:
                return None
            entity = self.member(entity, part)
        return entity

    def _first_name(self, file: FileNames, name: str, inside: Symbol | None) -> Entity | None:
        scope = inside.local if inside is not None else ""
        while True:
            index = file.by_local.get(f"{scope}.{name}" if scope else name)
            if index is not None:
                return Entity(Definition(file.path, index, file.outline.symbols[index]))
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        return self.binding(file, name) or self.starred(file, name) or self.sibling(file, name)

    def _dotted_module(self, file: FileNames, dotted: str) -> Entity | None:
        """``a.b.f`` after ``import a.b``."""
        module = dotted.rpartition(".")[0]
        while module:
            if module in file.dotted:
                found = file.dotted[module]
                targets = self.module_of(file, found)
                names = dotted[len(module) + 1 :].split(".")
                if not targets:
                    return Entity(external=dotted)
                entity: Entity | None = Entity(module=tuple(targets))
                for name in names:
                    entity = self.member(entity, name) if entity is not None else None
                return entity
            module = module.rpartition(".")[0]
        return None

    def starred(self, file: FileNames, name: str) -> Entity | None:
        for star in file.stars:
            for target in self.module_of(file, star):
                hit = self.lookup(target, name)
                if hit is not None and not hit.external:
                    return hit
        return None

    def sibling(self, file: FileNames, name: str) -> Entity | None:
        """A top-level name of the same package: Go and Java need no import for it."""
        if file.family not in ("go", "java"):
            return None
        directory = file.path.rpartition(b"/")[0]
        for other in self.view.defining(name, directory):
            near = self.file(other.path) if "." not in other.symbol.local else None
            if near is not None and near.family == file.family:
                return Entity(other)
        return None


def _keep(answers: dict[Key, Answer], key: Key, answer: Answer) -> None:
    if len(answers) >= _MOST_KEPT:
        answers.clear()
    answers[key] = answer


def _near(path: bytes, owner: bytes, family: str) -> bool:
    """Whether a method in one file can belong to a type in the other."""
    if family == "rust":
        return path.split(b"/")[:1] == owner.split(b"/")[:1]
    return True
