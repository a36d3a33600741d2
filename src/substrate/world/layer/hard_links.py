"""Files with several names: other names of a file of the tree, and links that a command made."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping

from substrate.model import ROOT, Node, RelPath, display, join
from substrate.workspace import Exclusions
from substrate.workspace.apply import LeftOut
from substrate.workspace.paths import Directory


def other_names(
    opened: Callable[[RelPath], Directory | None],
    exclusions: Exclusions,
    wanted: Mapping[tuple[int, int], Node],
) -> Iterator[tuple[RelPath, Node]]:
    """Every name in the tree of the files in `wanted`, by device and inode; `opened` returns a
    directory of the tree, or None.

    This is the only walk of the tree when a layer is read; there is no other way to find them.
    """
    pending = [ROOT]
    while pending:
        path = pending.pop()
        directory = opened(path)
        if directory is None:
            continue
        with directory:
            for name in directory.names():
                below, at = join(path, name), directory.lstat(name)
                is_dir = stat.S_ISDIR(at.st_mode)
                if exclusions.own_reason(below, is_dir=is_dir, size=at.st_size):
                    continue
                found = wanted.get((at.st_dev, at.st_ino))
                if is_dir:
                    pending.append(below)
                elif found is not None:
                    yield below, found


class NewLinks:
    """Collects the names of each file of a layer that has more than one: hard links that a command
    made to files of the tree arrive as separate files.

    New files with several names arrive with all of them, because they are renamed out of the layer.
    But ``ln old new`` makes the world copy ``old`` up; the real one stays where it is, and ``new``
    is another name of the copy.
    """

    def __init__(self) -> None:
        self._names: dict[int, list[tuple[RelPath, bool]]] = {}

    def saw(self, path: RelPath, at: os.stat_result, is_copy: bool) -> None:
        """`is_copy`: of the file at the same path in the tree."""
        if at.st_nlink > 1:
            self._names.setdefault(at.st_ino, []).append((path, is_copy))

    def broken(self) -> list[LeftOut]:
        """The names that will not be names of the same file."""
        out = []
        for names in self._names.values():
            stay = sorted(path for path, is_copy in names if is_copy)
            if stay:
                why = (
                    f"arrives as a file of its own: in the world it was {display(stay[0])}, linked"
                )
                out += [LeftOut(path, why) for path, is_copy in names if not is_copy]
        return sorted(out)
