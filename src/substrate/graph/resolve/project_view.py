"""What resolution may query about the project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from substrate.graph.parse import Outline, Symbol, name_hash

if TYPE_CHECKING:
    from substrate.graph.index import Sections

#: How many definitions of one name are considered; a name with more is ambiguous anyway.
MANY = 40
#: The most outlines in memory at a time.
_MOST_OUTLINES = 4_000
#: After this many searches for paths, making a table is worthwhile.
_SEARCHED = 64


class Definition(Struct, frozen=True, gc=False):
    path: bytes
    #: Its index among the file's symbols.
    number: int
    symbol: Symbol


class ProjectView(Protocol):
    def has(self, path: bytes) -> bool: ...

    def outline(self, path: bytes) -> Outline | None:
        """The outline of a path; None if the path does not exist or has no symbols."""
        ...

    def defining(self, name: str, directory: bytes | None = None) -> Iterable[Definition]:
        """Symbols with this name, in the order of paths, from `MANY` paths at most.

        With `directory`, only those of files directly in it.
        """
        ...

    def may_have_module(self, name: bytes) -> bool:
        """False only if no Python file and no package has that name."""
        ...

    def ending(self, suffix: bytes) -> list[bytes]:
        """Paths that are `suffix` or end with ``/`` and it."""
        ...

    def inside(self, directory: bytes) -> list[bytes]:
        """Paths directly in a directory (``b""`` is the root)."""
        ...


class Places:
    """Paths by their last name and by their directory.

    A small change needs few lookups: these search one text of all paths. The tables are made only
    if more lookups follow.
    """

    def __init__(self, paths: Sequence[bytes]) -> None:
        self._paths = paths
        self._text = b""
        self._questions = 0
        self._by_basename: dict[bytes, list[bytes]] | None = None
        self._by_directory: dict[bytes, list[bytes]] | None = None

    def ending(self, suffix: bytes) -> list[bytes]:
        self._questions += 1
        if self._questions <= _SEARCHED:
            return self._search(suffix)
        if self._by_basename is None:
            self._by_basename = {}
            for path in self._paths:
                self._by_basename.setdefault(path.rpartition(b"/")[2], []).append(path)
        paths = self._by_basename.get(suffix.rpartition(b"/")[2], [])
        tail = b"/" + suffix
        return [path for path in paths if path == suffix or path.endswith(tail)]

    def _search(self, suffix: bytes) -> list[bytes]:
        if not self._text:
            self._text = b"".join(b"/%b\0" % path for path in self._paths)
        text, wanted, found = self._text, b"/%b\0" % suffix, []
        at = text.find(wanted)
        while at >= 0:
            end = at + len(wanted) - 1
            found.append(text[text.rfind(b"\0", 0, at) + 2 : end])
            at = text.find(wanted, end)
        return found

    def inside(self, directory: bytes) -> list[bytes]:
        if self._by_directory is None:
            self._by_directory = {}
            for path in self._paths:
                self._by_directory.setdefault(path.rpartition(b"/")[0], []).append(path)
        return self._by_directory.get(directory, [])


class TreeView:
    """A whole tree, by its table of sections; outlines are read on demand."""

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
        """A quick check: most imports are of other packages, and every root would be searched."""
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
        for row in self._table.rows_defining(name_hash(name), directory):
            path = self._table.paths[row]
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
