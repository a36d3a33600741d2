"""Paths of one plan that a folding file system treats as the same file.

    the plan                    the tree has A.TXT, and a.txt finds it
    remove  A.TXT   expected    it is A.TXT: remove it
    create  a.txt   "there"     it is not a.txt: create it, or the removal takes the only copy

So for such paths a lookup is not enough: the directory must list the name as the plan spells it. On
a file system that does not fold names, a listing gives the same result as a lookup. Whether names
fold is not tested: ext4 decides that per directory, and some file systems fold only Unicode forms.
"""

from __future__ import annotations

from collections.abc import Collection

from substrate.model import RelPath, ancestors, split
from substrate.system.files import folded
from substrate.workspace.paths import Walker


class Twins:
    def __init__(self, paths: Collection[RelPath]) -> None:
        self._paths = paths
        self._found: frozenset[RelPath] | None = None
        self._listings: dict[RelPath, frozenset[bytes]] = {}

    def has_this_spelling(self, path: RelPath, walker: Walker) -> bool:
        """False: nothing is at `path`, or only a file that the tree spells differently.

        Always true for paths without a twin in the plan; for those a lookup is enough.
        """
        if self._found is None:
            self._found = self._find()
        if not self._found:
            return True
        way = [path, *ancestors(path)]
        if self._found.isdisjoint(way):
            return True
        return all(self._is_listed(one, walker) for one in reversed(way))

    def forget_listings(self) -> None:
        """Call this before the tree changes."""
        self._listings.clear()

    def _find(self) -> frozenset[RelPath]:
        if len(self._paths) < 2:
            return frozenset()
        spellings: dict[str, list[RelPath]] = {}
        for path in self._paths:
            spellings.setdefault(folded(path), []).append(path)
        return frozenset(path for same in spellings.values() if len(same) > 1 for path in same)

    def _is_listed(self, path: RelPath, walker: Walker) -> bool:
        above, name = split(path)
        if above not in self._listings:
            with walker.directory(above) as directory:
                self._listings[above] = frozenset(directory.names())
        return name in self._listings[above]
