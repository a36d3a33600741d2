"""Which files can get a name from a changed file: by import, re-export, inheritance or package.

Only the table of sections is searched; outlines are read only for the files found. Every answer
may contain too many rows, but never too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from substrate.graph.index.path_section import RENAMES, WORDS
from substrate.graph.index.splice import Sections
from substrate.graph.parse import Import, Outline, name_hash
from substrate.graph.resolve import FAMILIES

#: Files that determine what imports mean for everything below their directory.
_ROOT_FILES = frozenset(
    (
        *("__init__.py", "__init__.pyi", "go.mod", "mod.rs", "lib.rs", "main.rs"),
        *("index.js", "index.ts", "index.tsx", "index.jsx", "index.mjs"),
    )
)
#: Directories where the absolute imports of every file may start.
_IMPORT_ROOTS = frozenset({b"", b"src", b"lib", b"python"})
_PACKAGE_FILES = (b"/__init__.py", b"/__init__.pyi", b"/index.ts", b"/index.js")
#: Words of an import that do not name a file.
_RELATIVE = frozenset({"super", "self", "crate"})
#: Up to this many files that mention a name are all taken without further checks.
FEW_ROWS = 16
#: If more files than this re-export a name, every file that mentions the name is taken.
_MOST_PASSERS = 64


class Reach:
    """Finds the files that can get a name from another file; caches its searches."""

    def __init__(self, base: Sections, outlines: Callable[[bytes], Iterable[Outline]]) -> None:
        """`outlines` returns the outlines of a path before and after the change."""
        self._base = base
        self._outlines = outlines
        self._mentioning: dict[str, set[int]] = {}
        self._importing: dict[bytes, set[int]] = {}
        self._near: dict[tuple[bytes, bool], set[int]] = {}

    def mentioning(self, name: str) -> set[int]:
        """Rows that mention a name; the set is shared: do not change it."""
        if name not in self._mentioning:
            self._mentioning[name] = self._base.rows_mentioning({name_hash(name)})
        return self._mentioning[name]

    def mentioning_any(self, names: Iterable[str]) -> set[int]:
        names = set(names)
        self.search_ahead(names)
        return set[int]().union(*map(self.mentioning, names))

    def search_ahead(self, names: Iterable[str]) -> None:
        """Search for many names at once: one pass over the table instead of one for each."""
        hashes = {name: name_hash(name) for name in names if name not in self._mentioning}
        rows = self._base.rows_mentioning_each(set(hashes.values()))
        self._mentioning.update((name, rows[hash_]) for name, hash_ in hashes.items())

    def rows_below(self, directory: bytes) -> range:
        return self._base.rows_below(directory)

    def importing(self, path: bytes) -> set[int]:
        """Rows whose imports can mean the file; the set is shared: do not change it.

        In Python and JavaScript an import of ``d/x.py`` mentions `x`. It also mentions `d`,
        unless the importing file is below `d` or imports start at `d`.
        """
        if path not in self._importing:
            self._importing[path] = self._importing_of(path)
        return self._importing[path]

    def _importing_of(self, path: bytes) -> set[int]:
        words = path_words(path)
        found = self.mentioning_any(words)
        directory = path.rpartition(b"/")[0]
        if len(found) <= FEW_ROWS or directory in _IMPORT_ROOTS or not self._is_plain(path):
            return found
        last = _last_words(directory)
        if not last:
            return found
        beside = set(self.rows_below(directory)) | self.mentioning_any(last)
        if found <= beside:
            return found
        # The package may have another name in a file that passes it on.
        return found & (beside | self.rows([directory + name for name in _PACKAGE_FILES], words))

    def _is_plain(self, path: bytes) -> bool:
        """Whether an import names the file by its own name and that of its directory."""
        families = {FAMILIES.get(outline.language, "") for outline in self._outlines(path)}
        return bool(families) and families <= {"python", "js"} and not is_root(path)

    def near(self, path: bytes, *, is_source: bool = False) -> set[int]:
        """Rows that can name the file in an import, or see it without one.

        `is_source`: check imports more closely. Only for the files where a search begins: the
        check is a search itself.
        """
        key = path, is_source
        if key not in self._near:
            self._near[key] = self._near_of(path, is_source)
        return self._near[key]

    def _near_of(self, path: bytes, is_source: bool) -> set[int]:
        directory, words = path.rpartition(b"/")[0], _words_elsewhere(path)
        if not words:
            return set(range(len(self._base)))
        if is_source and not is_root(path):
            found = set(self.importing(path))
        else:
            found = self.mentioning_any(words)
        if is_root(path):  # ``from . import f`` names no file
            found |= set(self.rows_below(directory))
        elif path.endswith(b".rs"):  # `super`, from ``a/b.rs``, is ``a.rs``
            found |= set(self.rows_below(path.removesuffix(b".rs")))
        if path.endswith((b".go", b".java")):  # a package's files see each other
            found |= set(self._base.rows_in(directory))
        if path.endswith(b".go"):  # the package beside ``go.mod`` has the module's name
            for outline in self._outlines(directory + b"/go.mod" if directory else b"go.mod"):
                found |= self.mentioning_any(WORDS.findall(outline.package.rpartition("/")[2]))
        return found

    def rows(
        self, paths: list[bytes], names: set[str], *, heirs: bool = False, anywhere: bool = False
    ) -> set[int]:
        """Rows that mention one of `names`, or an alias of it, and can mean the one in `paths`.

        `heirs`: a class that inherits from one of the names counts as one of them.
        `anywhere`: do not check whether a file can see `paths`.
        """
        if not names:
            return set()
        search = _Search(self, self._outlines, self._base.paths, names, heirs)
        if not anywhere and len(self.mentioning_any(names)) > FEW_ROWS:
            if search.along_imports(paths):
                return search.answer()
            search = _Search(self, self._outlines, self._base.paths, names, heirs)
        search.everywhere(paths)
        return search.answer()


class _Search:
    """One search: aliases and heirs add names, re-exports add files."""

    def __init__(
        self, reach: Reach, outlines: Callable[[bytes], Iterable[Outline]], paths: list[bytes],
        names: set[str], heirs: bool,
    ) -> None:  # fmt: skip
        self._reach = reach
        self._outlines = outlines
        self._paths = paths
        self._heirs = heirs
        self._names = set(names)
        self._modules: set[str] = set()
        self._found: set[int] = set()

    def answer(self) -> set[int]:
        return self._found & self._reach.mentioning_any(self._names)

    def everywhere(self, paths: list[bytes]) -> None:
        """All rows that mention the names or their aliases."""
        for path in paths:
            self._take_names(path)
        while True:
            fresh = self._reach.mentioning_any(self._names) - self._found
            if not fresh:
                return
            self._found |= fresh
            for row in fresh:
                self._take_names(self._paths[row])

    def along_imports(self, paths: list[bytes]) -> bool:
        """Find rows that can get the names from `paths`; False if too many files re-export them."""
        near: set[int] = set()
        sources, passers = set(paths), set(paths)
        todo = list(paths)
        looked_at: set[int] = set()
        for path in paths:
            self._modules |= path_words(path)
        for path in paths:
            self._take_names(path)
        while todo:
            if len(passers) > _MOST_PASSERS:
                return False
            self._reach.search_ahead(word for path in todo for word in path_words(path))
            near = near.union(*(self._reach.near(p, is_source=p in sources) for p in todo))
            fresh = near & (
                self._reach.mentioning_any(self._names)
                | self._reach.mentioning("*")
                | self._reach.mentioning(RENAMES)
            )
            known = len(self._names) + len(self._modules)
            todo = []
            for row in fresh - looked_at:
                if self._take_names(self._paths[row]) and self._paths[row] not in passers:
                    todo.append(self._paths[row])
            grew = len(self._names) + len(self._modules) > known
            # After a new name, the same files must be checked again.
            looked_at = set() if grew else looked_at | fresh
            passers.update(todo)
            self._modules.update(*map(path_words, todo))
            if grew and not todo:
                todo = list(paths[:1])
            self._found |= fresh
        return True

    def _take_names(self, path: bytes) -> bool:
        """Add the file's aliases of the names; True if other files can get them from it."""
        passes = False
        for outline in self._outlines(path):
            for found in outline.imports:
                passes |= self._take_import(found, outline.language)
            for out, inner in outline.exports:
                if inner in self._names:
                    self._names.add(out)
                    passes = True
            if self._heirs:
                passes |= self._take_heirs(outline)
        return passes

    def _take_import(self, found: Import, language: str) -> bool:
        is_ours = language == "Go" or self._may_mean(found.module)
        passes = False
        for name, alias in found.names:
            if name in self._names:
                self._names.add(alias)
                passes = True
            elif name != alias and (name in self._modules or (name == "default" and is_ours)):
                self._modules.add(alias)
                passes = True
            passes |= name == "*" and is_ours
        if found.alias and is_ours and found.alias not in self._modules:
            self._modules.add(found.alias)
            passes = True
        return passes

    def _may_mean(self, module: str) -> bool:
        """Whether an import of `module` can be one of the files that have the names."""
        words = set(WORDS.findall(module.rpartition("/")[2])) - _RELATIVE
        return not words or not words.isdisjoint(self._modules)

    def _take_heirs(self, outline: Outline) -> bool:
        passes = grows = False
        while True:  # an heir may have heirs in the same file, before or after it
            for symbol in outline.symbols:
                if symbol.bases and symbol.name not in self._names:
                    bases = {base.replace("::", ".").rpartition(".")[2] for base in symbol.bases}
                    if bases & self._names:
                        self._names.add(symbol.name)
                        grows = passes = True
            if not grows:
                return passes
            grows = False


def is_root(path: bytes) -> bool:
    return path.rpartition(b"/")[2].decode("utf-8", "replace") in _ROOT_FILES


def path_words(path: bytes) -> set[str]:
    """The words that an import can use to name a file: its stem's, or its directory's.

    A directory names its root file (``pkg/__init__.py``), and in Go and Java all files in it.
    Another Rust crate names ``my-crate/src/lib.rs`` by `my_crate`.
    """
    directory, _, base = path.decode("utf-8", "replace").rpartition("/")
    words = set(WORDS.findall(base.partition(".")[0]))
    if is_root(path) or path.endswith((b".go", b".java")):
        words |= set(WORDS.findall(directory.rpartition("/")[2]))
    if base == "lib.rs":
        crate = directory.removesuffix("/src").rpartition("/")[2]
        words |= {*WORDS.findall(crate), *WORDS.findall(crate.replace("-", "_"))}
    return words


def _words_elsewhere(path: bytes) -> set[str]:
    """The words that an import can use to name a file, if the importing file is not below it.

    Most files mention `__init__`; from elsewhere ``d/__init__.py`` is always named by `d`.
    """
    directory, _, base = path.rpartition(b"/")
    is_package = is_root(path) and base.startswith((b"__init__.", b"index."))
    if is_package and directory not in _IMPORT_ROOTS:
        return _last_words(directory) or path_words(path)
    return path_words(path)


def _last_words(directory: bytes) -> set[str]:
    return set(WORDS.findall(directory.rpartition(b"/")[2].decode("utf-8", "replace")))
