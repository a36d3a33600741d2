"""What resolution may ask about the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from substrate.graph.facts import Outline, Symbol

#: Definitions of one name that are looked at; a name with more is ambiguous anyway.
MANY = 40


class Definition(NamedTuple):
    path: bytes
    #: Its place among the file's symbols.
    number: int
    symbol: Symbol


class World(Protocol):
    def has(self, path: bytes) -> bool: ...

    def outline(self, path: bytes) -> Outline | None:
        """None for a path that is not there, or holds no symbols."""
        ...

    def defining(self, name: str, directory: bytes | None = None) -> list[Definition]:
        """Symbols with this name, in the order of paths, `MANY` paths at most.

        With `directory`, only those of files directly in it.
        """
        ...

    def ending(self, suffix: bytes) -> list[bytes]:
        """Paths that are `suffix` or end with ``/`` and it."""
        ...

    def inside(self, directory: bytes) -> list[bytes]:
        """Paths directly in a directory (``b""`` is the root)."""
        ...


class Places:
    """Paths by their last name and by their directory."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._by_basename: dict[bytes, list[bytes]] = {}
        self._by_directory: dict[bytes, list[bytes]] = {}
        for path in paths:
            directory, _, base = path.rpartition(b"/")
            self._by_basename.setdefault(base, []).append(path)
            self._by_directory.setdefault(directory, []).append(path)

    def ending(self, suffix: bytes) -> list[bytes]:
        paths = self._by_basename.get(suffix.rpartition(b"/")[2], [])
        tail = b"/" + suffix
        return [path for path in paths if path == suffix or path.endswith(tail)]

    def inside(self, directory: bytes) -> list[bytes]:
        return self._by_directory.get(directory, [])


class MemoryWorld:
    """Everything at hand: for indexing a whole tree."""

    def __init__(self, outlines: Mapping[bytes, Outline | None]) -> None:
        """`outlines` holds every path, in order."""
        self._outlines = outlines
        self._places = Places(outlines)
        self._by_name: dict[str, list[Definition]] = {}
        self._first: dict[str, list[Definition]] = {}
        for path, outline in outlines.items():
            for number, symbol in enumerate(outline.symbols if outline is not None else ()):
                if number:
                    found = Definition(path, number, symbol)
                    self._by_name.setdefault(symbol.name, []).append(found)

    def has(self, path: bytes) -> bool:
        return path in self._outlines

    def outline(self, path: bytes) -> Outline | None:
        return self._outlines.get(path)

    def defining(self, name: str, directory: bytes | None = None) -> list[Definition]:
        found = self._by_name.get(name, [])
        if directory is not None:
            found = [one for one in found if one.path.rpartition(b"/")[0] == directory]
            return first_paths(found)
        if len(found) > MANY and name not in self._first:
            self._first[name] = first_paths(found)
        return self._first.get(name, found)

    def ending(self, suffix: bytes) -> list[bytes]:
        return self._places.ending(suffix)

    def inside(self, directory: bytes) -> list[bytes]:
        return self._places.inside(directory)


def first_paths(found: list[Definition]) -> list[Definition]:
    """Those of the first `MANY` paths; `found` is in the order of paths."""
    if len(found) <= MANY:
        return found
    allowed = list(dict.fromkeys(one.path for one in found))[:MANY]
    return [one for one in found if one.path <= allowed[-1]]


def definitions_in(path: bytes, outline: Outline | None, name: str) -> list[Definition]:
    return [
        Definition(path, index, symbol)
        for index, symbol in enumerate(outline.symbols if outline is not None else ())
        if symbol.name == name and index
    ]
