"""Of files that were looked at a while ago, those to which nothing was done since."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from substrate.model.paths import RelPath, split
from substrate.workspace.dirwalk import SEARCH, Directory, Walker
from substrate.workspace.probe import Seen


def still_so(root: Path, seen: Mapping[RelPath, Seen]) -> dict[RelPath, Seen]:
    """Those of `seen` that stand there untouched; the others must be looked at again.

    As good as a look before something is changed, where that compares the bytes once more.
    Quickest where those of one directory are neighbours.
    """
    walker, out = Walker(root), {}
    above: RelPath | None = None
    directory: Directory | None = None
    try:
        for path, one in seen.items():
            here, name = split(path)
            try:
                if here != above:
                    if directory is not None:
                        directory.close()
                    above, directory = here, None
                    directory = walker.directory(here, SEARCH)
                if directory is None:
                    continue  # it could not be reached a moment ago
                at = directory.lstat(name)
            except OSError:
                continue
            if one.same_inode_untouched(at):
                out[path] = one
    finally:
        if directory is not None:
            directory.close()
    return out
