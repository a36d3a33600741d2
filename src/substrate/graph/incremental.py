"""The next commit: only what changed, and the edges that pointed at it.

A file's edges depend on other files through names alone, and its mentioned names are in the table
of sections. So: which names mean something else now? Who mentions them? Those files' edges are
made again; the rest of the snapshot is copied.
"""

from __future__ import annotations

from pathlib import Path

from substrate.graph.fact_source import FactSource, Wanted, wanted
from substrate.graph.facts import Import, Outline, name_hash, outline_of
from substrate.graph.resolve.edges import EdgeMaker, Edges
from substrate.graph.resolve.names import Names
from substrate.graph.resolve.world import MANY, Definition, Places, definitions_in
from substrate.graph.section import WORDS, Section, static_section
from substrate.graph.sections import Sections, read_section
from substrate.objects.repository import TreeChange

#: Files that decide what imports mean for everything below their directory.
_ROOT_FILES = frozenset(
    (
        *("__init__.py", "__init__.pyi", "go.mod", "mod.rs", "lib.rs", "main.rs"),
        *("index.js", "index.ts", "index.tsx", "index.jsx", "index.mjs"),
    )
)
#: Languages where a name of another file is only had by importing it; None: no such file.
_IMPORTED_ONLY = frozenset({"Python", "JavaScript", "TypeScript", "TSX", None})


class SplicedWorld:
    """The new tree, seen as the old table and what changed: looked up, not loaded."""

    def __init__(self, base: Sections, changed: dict[bytes, Wanted | None], facts: FactSource):
        self._base = base
        self._changed = changed
        self._facts = facts
        self._places: Places | None = None

    def row(self, path: bytes) -> Wanted | None:
        if path in self._changed:
            return self._changed[path]
        row = self._base.find(path)
        return Wanted(path, self._base.oids[row], self._base.keys[row]) if row >= 0 else None

    def has(self, path: bytes) -> bool:
        return self.row(path) is not None

    def may_have_module(self, name: bytes) -> bool:
        return True  # for a few files, nobody looks at all names

    def outline(self, path: bytes) -> Outline | None:
        one = self.row(path)
        return outline_of(self._facts.get(one.oid, one.key)) if one is not None else None

    def defining(self, name: str, directory: bytes | None = None) -> list[Definition]:
        paths = [path for path, one in self._changed.items() if one is not None]
        hash_ = name_hash(name)
        found = [
            (path, definitions_in(path, self.outline(path), name))
            for path in self._in(paths, directory)
        ]
        unchanged = 0
        for row in self._base.rows_defining(hash_):
            path = self._base.paths[row]
            if path in self._changed or not self._in([path], directory):
                continue
            here = definitions_in(path, self.outline(path), name)
            found.append((path, here))
            unchanged += bool(here)
            if unchanged == MANY:
                break
        holders = sorted(item for item in found if item[1])[:MANY]
        return [definition for _, here in holders for definition in here]

    @staticmethod
    def _in(paths: list[bytes], directory: bytes | None) -> list[bytes]:
        if directory is None:
            return paths
        return [path for path in paths if path.rpartition(b"/")[0] == directory]

    def ending(self, suffix: bytes) -> list[bytes]:
        return self._all().ending(suffix)

    def inside(self, directory: bytes) -> list[bytes]:
        return self._all().inside(directory)

    def _all(self) -> Places:
        if self._places is None:
            kept = (path for path in self._base.paths if path not in self._changed)
            new = (path for path, one in self._changed.items() if one is not None)
            self._places = Places(sorted([*kept, *new]))
        return self._places


class Update:
    """What a neighbour's snapshot must be given to become the new commit's."""

    def __init__(
        self, directory: Path, base: Sections, changes: list[TreeChange], facts: FactSource
    ) -> None:
        self._directory = directory
        self._base = base
        self._facts = facts
        self._changed: dict[bytes, Wanted | None] = {
            change.path: wanted(change.path, change.mode, change.oid) if change.oid else None
            for change in changes
        }
        self._world = SplicedWorld(base, self._changed, facts)
        #: Path -> the new section (None: removed) and the old one.
        self.edits: dict[bytes, Section | None] = {}
        self.replaced: list[tuple[bytes, Section | None]] = []

    @property
    def added(self) -> list[bytes]:
        return [p for p, one in self._changed.items() if one is not None and self._base.find(p) < 0]

    @property
    def gone(self) -> list[bytes]:
        return [p for p, one in self._changed.items() if one is None and self._base.find(p) >= 0]

    def run(self) -> None:
        maker = EdgeMaker(Names(self._world))
        self._facts.read_ahead(one for one in self._changed.values() if one is not None)
        for path, one in self._changed.items():
            old = self._base.find(path)
            before = read_section(self._directory, self._base, old) if old >= 0 else None
            after = self._section(maker, one) if one is not None else None
            if after != before:
                self._edit(path, before, after)
        for row in sorted(self.rows_to_resolve()):
            path = self._base.paths[row]
            if path in self._changed:
                continue
            before = read_section(self._directory, self._base, row)
            facts = self._facts.get(before.oid, before.key)
            after = with_edges(before, maker.edges(path, facts))
            if after != before:
                self._edit(path, before, after)

    def _edit(self, path: bytes, before: Section | None, after: Section | None) -> None:
        self.edits[path] = after
        self.replaced.append((path, before))

    def _section(self, maker: EdgeMaker, one: Wanted) -> Section:
        facts = self._facts.get(one.oid, one.key)
        section = static_section(one.path, one.oid, one.key, facts)
        return with_edges(section, maker.edges(one.path, facts))

    # -- whose edges may differ -------------------------------------------------------------------

    def rows_to_resolve(self) -> set[int]:
        """Rows of the base whose edges may have another meaning now; rather too many than too few.

        Methods, and names of languages with one space for all, count wherever they are mentioned.
        Other names count for those only who can have them from the changed file.
        """
        anywhere: set[str] = set()
        rows: set[int] = set()
        for path, one in self._changed.items():
            before, after = self._old_outline(path), self._world.outline(path)
            is_new_place = (self._base.find(path) < 0) != (one is None)
            if is_new_place or _exports(before) != _exports(after):
                anywhere |= path_words(path)
            if is_root(path) and (is_new_place or _package(before) != _package(after)):
                rows |= self._rows_below(path.rpartition(b"/")[0])
            names = changed_names(before, after) | self._starred(path, before, after)
            if _language(before) in _IMPORTED_ONLY and _language(after) in _IMPORTED_ONLY:
                anywhere |= _method_names(before, after) & names
                rows |= self._importers(path, names)
            else:
                anywhere |= names
        anywhere |= self._heirs()
        return rows | self._base.rows_mentioning({name_hash(name) for name in anywhere})

    def _importers(self, path: bytes, names: set[str]) -> set[int]:
        """Who can have one of `names` from `path`: by import, through re-exports and star imports.

        Everybody on such a way names the file before it, and mentions the name or a star.
        """
        if not names:
            return set()
        names = {*names, "*"}
        found: set[int] = set()
        todo = [path]
        while todo:
            mentioning = self._base.rows_mentioning({name_hash(name) for name in names})
            near: set[int] = set()
            for file in todo:
                near |= self._base.rows_mentioning({name_hash(word) for word in path_words(file)})
                if is_root(file):  # ``from . import f`` names no file
                    near |= self._rows_below(file.rpartition(b"/")[0])
            fresh = (mentioning & near) - found
            found |= fresh
            todo = [self._base.paths[row] for row in fresh]
            aliases = {alias for file in todo for alias in self._aliases(file, names)} - names
            if aliases:  # passed on under another name: those who mention that one, too
                names |= aliases
                todo = [path, *(self._base.paths[row] for row in found)]
        return found

    def _aliases(self, path: bytes, names: set[str]) -> set[str]:
        outline = self._world.outline(path)
        imports = outline.imports if outline is not None else ()
        return {alias for one in imports for name, alias in one.names if name in names}

    def _old_outline(self, path: bytes) -> Outline | None:
        row = self._base.find(path)
        if row < 0:
            return None
        return outline_of(self._facts.get(self._base.oids[row], self._base.keys[row]))

    def _rows_below(self, directory: bytes) -> set[int]:
        if not directory:
            return set(range(len(self._base)))
        prefix = directory + b"/"
        return {row for row, path in enumerate(self._base.paths) if path.startswith(prefix)}

    def _starred(self, path: bytes, before: Outline | None, after: Outline | None) -> set[str]:
        """A star import that came or went brings or takes every name of its target."""
        old = {_import_key(i): i for i in before.imports if _is_star(i)} if before else {}
        new = {_import_key(i): i for i in after.imports if _is_star(i)} if after else {}
        names: set[str] = set()
        lookup = Names(self._world)
        file = lookup.file(path)
        if file is None:
            return names
        seen: set[bytes] = set()
        todo = [
            target
            for key in old.keys() ^ new.keys()
            for target in lookup.module_of(file, old.get(key) or new[key])
        ]
        while todo:
            target = todo.pop()
            inner = lookup.file(target) if target not in seen else None
            seen.add(target)
            if inner is not None:
                names.update(symbol.name for symbol in inner.outline.symbols[1:])
                names.update(inner.bound)
                todo += [t for star in inner.stars for t in lookup.module_of(inner, star)]
        return names

    def _heirs(self) -> set[str]:
        """A class that has other bases now changes what its heirs inherit: their names."""
        found: set[str] = set()
        todo = {
            name
            for path in self._changed
            for name in _rebased(self._old_outline(path), self._world.outline(path))
        }
        while todo:
            found |= todo
            heirs: set[str] = set()
            for row in self._base.rows_mentioning({name_hash(name) for name in todo}):
                outline = self._world.outline(self._base.paths[row])
                for symbol in outline.symbols if outline is not None else ():
                    bases = {base.replace("::", ".").rpartition(".")[2] for base in symbol.bases}
                    if bases & todo:
                        heirs.add(symbol.name)
            todo = heirs - found
        return found


def with_edges(section: Section, edges: Edges) -> Section:
    chunks = (*section.chunks[:3], edges.imports, edges.calls)
    return section._replace(chunks=chunks, called=edges.called)


def changed_names(before: Outline | None, after: Outline | None) -> set[str]:
    """Names that a file defines or passes on, and that mean something else now."""
    if before is not None and after is not None and before.package != after.package:
        return changed_names(before, None) | changed_names(None, after)
    old, new = _definitions(before), _definitions(after)
    names = {item[0] for item in old ^ new}
    bound_old, bound_new = _bindings(before), _bindings(after)
    return names | {item[0] for item in bound_old ^ bound_new}


def _definitions(outline: Outline | None) -> set[tuple[str, str, str, tuple[str, ...]]]:
    symbols = outline.symbols[1:] if outline is not None else ()
    return {(s.name, s.local, s.key, tuple(s.bases)) for s in symbols}


def _bindings(outline: Outline | None) -> set[tuple[str, str, str, int]]:
    imports = outline.imports if outline is not None else ()
    found = set()
    for one in imports:
        for name, alias in one.names:
            found.add((alias, name, one.module, one.level))
        if one.alias or not one.names:
            found.add((one.alias or one.module, "", one.module, one.level))
    return found


def _method_names(before: Outline | None, after: Outline | None) -> set[str]:
    symbols = [s for outline in (before, after) if outline is not None for s in outline.symbols]
    return {symbol.name for symbol in symbols if symbol.kind == "method"}


def _rebased(before: Outline | None, after: Outline | None) -> set[str]:
    """Classes that came, went or have other bases, if they have bases before or after."""
    old = {(s.local, tuple(s.bases)) for s in (before.symbols if before else ()) if s.bases}
    new = {(s.local, tuple(s.bases)) for s in (after.symbols if after else ()) if s.bases}
    return {local.rpartition(".")[2] for local, _ in old ^ new}


def _language(outline: Outline | None) -> str | None:
    return outline.language if outline is not None else None


def _package(outline: Outline | None) -> str:
    return outline.package if outline is not None else ""


def is_root(path: bytes) -> bool:
    return path.rpartition(b"/")[2].decode("utf-8", "replace") in _ROOT_FILES


def _exports(outline: Outline | None) -> list[tuple[str, str]]:
    return outline.exports if outline is not None else []


def _is_star(one: Import) -> bool:
    return any(name == "*" for name, _ in one.names)


def _import_key(one: Import) -> tuple[str, int]:
    return one.module, one.level


def path_words(path: bytes) -> set[str]:
    """The words by which an import can name a file: its stem's, or its directory's.

    A directory names its root file (``pkg/__init__.py``), and in Go and Java all files in it.
    """
    directory, _, base = path.decode("utf-8", "replace").rpartition("/")
    words = set(WORDS.findall(base.partition(".")[0]))
    if is_root(path) or path.endswith((b".go", b".java")):
        words |= set(WORDS.findall(directory.rpartition("/")[2]))
    return words
