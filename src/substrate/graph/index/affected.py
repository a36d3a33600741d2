"""Which files may have different edges in the next commit.

An edge depends on other files through names. A changed name matters in four ways:

    taken      a top-level name, by import, re-export or package           `Reach`
    member     of a class that a file names, or inherits from              `Reach`, with heirs
    guessed    the project's only method or function of that name          compared, old and new
    windowed   of a name with many definitions only the first are read     compared, old and new

If only few files mention a name, all of them are taken without further checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from substrate.graph.index.name_reach import FEW_ROWS, Reach, is_root, path_words
from substrate.graph.index.splice import Sections
from substrate.graph.parse import CLASS_KINDS, Import, Outline, name_hash
from substrate.graph.resolve import FAMILIES, MANY, Definition, Names, ProjectView

#: Language families whose methods may be defined outside of their class, anywhere in the project.
_SCATTERED = frozenset({"c", "rust"})
#: Families in which a directory is a package.
_PACKAGED = frozenset({"go", "java"})
#: Kinds that a call without a receiver can mean in C and Ruby.
_CALLABLE = frozenset({"function", "macro", "method", "class", "struct"})
#: If more files than this define a class of one name, any of them may be meant.
_MANY_OWNERS = 20


class Both(NamedTuple):
    """A changed path, before and after."""

    path: bytes
    before: Outline | None
    after: Outline | None
    #: It was added or removed.
    is_new_place: bool


class Affected:
    """The rows of a table whose edges may have another meaning after the changes."""

    def __init__(
        self, base: Sections, changed: list[Both], old: ProjectView, new: ProjectView
    ) -> None:
        self._base = base
        self._changed = changed
        self._old = old
        self._new = new
        self._both = {one.path: one for one in changed}
        self._reach = Reach(base, self._outlines)
        #: Directories with changes whose files see each other without an import.
        self._packages = {
            one.path.rpartition(b"/")[0]
            for one in changed
            if _family(one.before) in _PACKAGED or _family(one.after) in _PACKAGED
        }

    def _outlines(self, path: bytes) -> list[Outline]:
        one = self._both.get(path)
        pair = (one.before, one.after) if one else (self._new.outline(path),)
        return [outline for outline in pair if outline is not None]

    def rows(self) -> set[int]:
        """The affected rows: possibly too many, never too few."""
        reach, found = self._reach, set[int]()
        names: set[str] = set()
        members: dict[str, set[tuple[str, bytes]]] = {}
        reach.search_ahead(self._names_to_search())
        for one in self._changed:
            exports = set(_exports(one.before)) ^ set(_exports(one.after))
            if one.is_new_place or exports:
                found |= reach.importing(one.path)
            if is_root(one.path) and (one.is_new_place or _package(one) != ("", "")):
                found |= set(reach.rows_below(one.path.rpartition(b"/")[0]))
            change = changed_names(one.before, one.after)
            taken = change.top | self._starred(one) | {out for out, _ in exports}
            found |= reach.rows([one.path], taken)
            for local in change.members:
                owner, _, name = local.rpartition(".")
                members.setdefault(name, set()).add((owner.rpartition(".")[2], one.path))
                if FAMILIES.get(_language(one), "") == "rust":  # ``use a::f``, where a has `T.f`
                    found |= reach.rows([one.path], {name})
            found |= reach.rows([one.path], _rebased(one), heirs=True)
            names |= {name for name in change.top if self._is_guessed(name, one)}
        for name in names | members.keys():
            mentioning = reach.mentioning(name)
            if len(mentioning) <= FEW_ROWS:
                found |= mentioning
            elif not mentioning <= found:
                found |= self._of_popular(name, members.get(name, set())) & mentioning
        return found

    def _names_to_search(self) -> set[str]:
        """Most of the names that `rows` searches for."""
        found: set[str] = set()
        for one in self._changed:
            change = changed_names(one.before, one.after)
            found |= change.top | _rebased(one) | path_words(one.path)
            found |= {member.rpartition(".")[2] for member in change.members}
        return found

    def _is_guessed(self, name: str, one: Both) -> bool:
        """Whether a reference can mean a top-level name without importing it from its file."""
        if FAMILIES.get(_language(one), "") not in ("python", "js"):
            return True
        # Only the first of many definitions of a name count: they may be different ones now.
        return sum(1 for _ in islice(self._base.rows_defining(name_hash(name)), MANY)) == MANY

    # -- names that many files mention ------------------------------------------------------------

    def _of_popular(self, name: str, members: set[tuple[str, bytes]]) -> set[int]:
        """Rows in which a name that many files mention may have another meaning."""
        before, after = self._answers(name, None), self._answers(name, None, new=True)
        if before.only != after.only:
            return self._reach.mentioning(name)
        found: set[int] = set()
        for _, directory in {where for where, _ in before.near.items() ^ after.near.items()}:
            found |= set(self._base.rows_in(directory))
        members = members | {(owner, path) for owner, path, _ in before.members ^ after.members}
        for directory in self._packages:
            old = self._answers(name, directory)
            new = self._answers(name, directory, new=True)
            if old.first != new.first:
                found |= set(self._base.rows_in(directory))
            members |= {(owner, path) for owner, path, _ in old.members ^ new.members}
        for owner in {owner for owner, _ in members}:
            found |= self._users(owner, sorted({p for o, p in members if o == owner}))
        return found

    def _users(self, owner: str, paths: list[bytes]) -> set[int]:
        """Rows that can mean a class named `owner` with members defined in `paths`."""
        homes: list[bytes] = []
        if any(_family(o) in _SCATTERED for p in paths for o in self._outlines(p)):
            for view in (self._old, self._new):
                for found in view.defining(owner):
                    if found.symbol.kind in CLASS_KINDS and found.path not in homes:
                        homes.append(found.path)
        anywhere = len(homes) > _MANY_OWNERS
        return self._reach.rows([*paths, *homes], {owner}, heirs=True, anywhere=anywhere)

    def _answers(self, name: str, directory: bytes | None, *, new: bool = False) -> _Answers:
        view = self._new if new else self._old
        found = list(view.defining(name, directory))
        families = {d.path: _family(view.outline(d.path)) for d in found}
        return _answers(found, lambda d: families[d.path])

    # -- names that come through a file -----------------------------------------------------------

    def _starred(self, one: Both) -> set[str]:
        """A star import that was added or removed changes every name of its target."""
        old = {_import_key(i): i for i in one.before.imports if _is_star(i)} if one.before else {}
        new = {_import_key(i): i for i in one.after.imports if _is_star(i)} if one.after else {}
        names: set[str] = set()
        lookup = Names(self._new)
        file = lookup.file(one.path)
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


class _Answers(NamedTuple):
    """The answer to each question from the definitions of one name that are considered."""

    #: Family -> its only method; family -> C's or Ruby's only function.
    only: dict[tuple[str, str], tuple[bytes, str, int]]
    #: Family and directory -> the only function in it.
    near: dict[tuple[str, bytes], tuple[bytes, str]]
    #: Owner, path and key of members that may be outside of their class.
    members: set[tuple[str, bytes, str]]
    #: Family -> the first definition that is not a member.
    first: dict[str, tuple[bytes, str]]


def _answers(found: list[Definition], family_of: Callable[[Definition], str]) -> _Answers:
    said = _Answers({}, {}, set(), {})
    methods: dict[str, list[Definition]] = {}
    functions: dict[str, list[Definition]] = {}
    for one in found:
        family, symbol = family_of(one), one.symbol
        if symbol.kind == "method":
            methods.setdefault(family, []).append(one)
        if family in ("c", "ruby") and symbol.kind in _CALLABLE:
            functions.setdefault(family, []).append(one)
        if "." in symbol.local:
            if family in {*_SCATTERED, "go"}:
                owner = symbol.local.rpartition(".")[0].rpartition(".")[2]
                said.members.add((owner, one.path, symbol.key))
        else:
            said.first.setdefault(family, (one.path, symbol.key))
    for family, listed in methods.items():
        if len(listed) == 1:
            said.only["method", family] = listed[0].path, listed[0].symbol.key, 0
    for family, listed in functions.items():
        plain = [one for one in listed if one.symbol.kind != "method"] or listed
        if len(plain) == 1:
            said.only[family, ""] = plain[0].path, plain[0].symbol.key, plain[0].symbol.parent
        said.near.update(_only_in_directory(family, plain))
    return said


def _only_in_directory(
    family: str, found: list[Definition]
) -> Iterator[tuple[tuple[str, bytes], tuple[bytes, str]]]:
    directories: dict[bytes, list[Definition]] = {}
    for one in found:
        directories.setdefault(one.path.rpartition(b"/")[0], []).append(one)
    for directory, here in directories.items():
        if len(here) == 1:
            yield (family, directory), (here[0].path, here[0].symbol.key)


class Changed(NamedTuple):
    #: Names that other files can import from the file.
    top: set[str]
    #: Members, qualified inside the file.
    members: set[str]


def changed_names(before: Outline | None, after: Outline | None) -> Changed:
    """Names that a file defines or re-exports, and that have another meaning now."""
    if before is not None and after is not None and before.package != after.package:
        gone, come = changed_names(before, None), changed_names(None, after)
        return Changed(gone.top | come.top, gone.members | come.members)
    definitions = _definitions(before) ^ _definitions(after)
    members = {local for _, local, _, _, _ in definitions if "." in local}
    top = {name for name, local, _, _, _ in definitions if "." not in local}
    return Changed(top | {item[0] for item in _bindings(before) ^ _bindings(after)}, members)


def _definitions(outline: Outline | None) -> set[tuple[str, str, str, int, tuple[str, ...]]]:
    symbols = outline.symbols[1:] if outline is not None else ()
    return {(s.name, s.local, s.key, min(s.parent, 1), tuple(s.bases)) for s in symbols}


def _bindings(outline: Outline | None) -> set[tuple[str, str, str, int]]:
    imports = outline.imports if outline is not None else ()
    found = set()
    for one in imports:
        for name, alias in one.names:
            found.add((alias, name, one.module, one.level))
        if one.alias or not one.names:
            found.add((one.alias or one.module, "", one.module, one.level))
    return found


def _rebased(one: Both) -> set[str]:
    """Classes that were added, removed or rebased, if they have bases before or after."""
    before, after = one.before, one.after
    old = {(s.local, tuple(s.bases)) for s in (before.symbols if before else ()) if s.bases}
    new = {(s.local, tuple(s.bases)) for s in (after.symbols if after else ()) if s.bases}
    return {local.rpartition(".")[2] for local, _ in old ^ new}


def _family(outline: Outline | None) -> str:
    return FAMILIES.get(outline.language, "") if outline is not None else ""


def _language(one: Both) -> str:
    outline = one.after or one.before
    return outline.language if outline is not None else ""


def _package(one: Both) -> tuple[str, str]:
    """The package's name, before and after; both "" if it is the same."""
    before = one.before.package if one.before is not None else ""
    after = one.after.package if one.after is not None else ""
    return (before, after) if before != after else ("", "")


def _exports(outline: Outline | None) -> list[tuple[str, str]]:
    return outline.exports if outline is not None else []


def _is_star(one: Import) -> bool:
    return any(name == "*" for name, _ in one.names)


def _import_key(one: Import) -> tuple[str, int]:
    return one.module, one.level
