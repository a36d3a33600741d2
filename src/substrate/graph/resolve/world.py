"""What resolution may ask about the project."""

from __future__ import annotations

from collections import defaultdict
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
        self._places: Places | None = None
        #: Name -> paths and places among their symbols.
        self._by_name: defaultdict[str, list[tuple[bytes, int]]] = defaultdict(list)
        self._found: dict[tuple[str, bytes | None], list[Definition]] = {}
        for path, outline in outlines.items():
            for number, symbol in enumerate(outline.symbols if outline is not None else ()):
                if number:
                    self._by_name[symbol.name].append((path, number))

    def has(self, path: bytes) -> bool:
        return path in self._outlines

    def outline(self, path: bytes) -> Outline | None:
        return self._outlines.get(path)

    def defining(self, name: str, directory: bytes | None = None) -> list[Definition]:
        key = (name, directory)
        if key not in self._found:
            self._found[key] = self._defining(name, directory)
        return self._found[key]

    def _defining(self, name: str, directory: bytes | None) -> list[Definition]:
        found = self._by_name.get(name, [])
        if directory is not None:
            found = [one for one in found if one[0].rpartition(b"/")[0] == directory]
        if len(found) > MANY:
            last = list(dict.fromkeys(path for path, _ in found))[:MANY][-1]
            found = [one for one in found if one[0] <= last]
        definitions = []
        for path, number in found:
            outline = self._outlines[path]
            assert outline is not None
            definitions.append(Definition(path, number, outline.symbols[number]))
        return definitions

    def ending(self, suffix: bytes) -> list[bytes]:
        return self._all().ending(suffix)

    def inside(self, directory: bytes) -> list[bytes]:
        return self._all().inside(directory)

    def _all(self) -> Places:
        if self._places is None:
            self._places = Places(self._outlines)
        return self._places


def definitions_in(path: bytes, outline: Outline | None, name: str) -> list[Definition]:
    return [
        Definition(path, index, symbol)
        for index, symbol in enumerate(outline.symbols if outline is not None else ())
        if symbol.name == name and index
    ]
