"""Under which other names a file of the tree is known.

The only walk of the tree there is when a layer is read: nothing else tells.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping

from substrate.model.nodes import Node
from substrate.model.paths import ROOT, RelPath, join
from substrate.workspace.dirwalk import Directory
from substrate.workspace.exclude import Exclusions


def of(
    opened: Callable[[RelPath], Directory | None],
    exclusions: Exclusions,
    wanted: Mapping[tuple[int, int], Node],
) -> Iterator[tuple[RelPath, Node]]:
    """Every name in the tree of the files in `wanted`, which is by device and inode; `opened` gives
    a directory of the tree, or None."""
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
