"""What resolution may ask about the project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from substrate.graph.facts import Outline, Symbol, name_hash

if TYPE_CHECKING:
    from substrate.graph.sections import Sections

#: Definitions of one name that are looked at; a name with more is ambiguous anyway.
MANY = 40
#: Outlines that are held at a time.
_MOST_OUTLINES = 4_000


class Definition(Struct, frozen=True, gc=False):
    path: bytes
    #: Its place among the file's symbols.
    number: int
    symbol: Symbol


class World(Protocol):
    def has(self, path: bytes) -> bool: ...

    def outline(self, path: bytes) -> Outline | None:
        """None for a path that is not there, or holds no symbols."""
        ...

    def defining(self, name: str, directory: bytes | None = None) -> Iterable[Definition]:
        """Symbols with this name, in the order of paths, `MANY` paths at most.

        With `directory`, only those of files directly in it.
        """
        ...

    def may_have_module(self, name: bytes) -> bool:
        """False only if no Python file and no package is called so."""
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


class TreeWorld:
    """A whole tree, by its table of sections; outlines are read when somebody asks for them."""

    def __init__(self, table: Sections, outline_at: Callable[[int], Outline | None]) -> None:
        """`outline_at` reads the outline of a row of the table."""
        self._table = table
        self._rows = {path: row for row, path in enumerate(table.paths)}
        self._outline_at = outline_at
        self._outlines: dict[int, Outline | None] = {}
        self._places: Places | None = None
        self._modules: set[bytes] | None = None

    def has(self, path: bytes) -> bool:
        return path in self._rows

    def may_have_module(self, name: bytes) -> bool:
        """Most imports are of other packages, and would be looked for at every root."""
        if self._modules is None:
            self._modules = set()
            for path in self._table.paths:
                if path.endswith((b".py", b".pyi")):
                    above, _, base = path.rpartition(b"/")
                    stem = base.rpartition(b".")[0]
                    self._modules.add(stem)
                    if stem == b"__init__":
                        self._modules.add(above.rpartition(b"/")[2])
        return name in self._modules

    def outline(self, path: bytes) -> Outline | None:
        row = self._rows.get(path)
        if row is None:
            return None
        if row not in self._outlines:
            if len(self._outlines) >= _MOST_OUTLINES:
                self._outlines.clear()
            self._outlines[row] = self._outline_at(row)
        return self._outlines[row]

    def defining(self, name: str, directory: bytes | None = None) -> Iterator[Definition]:
        found = 0
        for row in self._table.rows_defining(name_hash(name)):
            path = self._table.paths[row]
            if directory is None or path.rpartition(b"/")[0] == directory:
                here = definitions_in(path, self.outline(path), name)
                yield from here
                found += bool(here)
                if found == MANY:
                    return

    def ending(self, suffix: bytes) -> list[bytes]:
        return self._all().ending(suffix)

    def inside(self, directory: bytes) -> list[bytes]:
        return self._all().inside(directory)

    def _all(self) -> Places:
        if self._places is None:
            self._places = Places(self._table.paths)
        return self._places


def definitions_in(path: bytes, outline: Outline | None, name: str) -> list[Definition]:
    return [
        Definition(path, index, symbol)
        for index, symbol in enumerate(outline.symbols if outline is not None else ())
        if symbol.name == name and index
    ]
