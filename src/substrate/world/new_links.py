"""Names that a command gave to files of the tree: they arrive as files of their own, and say so.

New files with several names arrive with all of them, because they are renamed out of the layer.
But ``ln old new`` makes the world copy ``old`` up; the real one stays where it is, and ``new`` is
another name of the copy.
"""

from __future__ import annotations

import os

from substrate.model.paths import RelPath, display
from substrate.workspace.layer import LeftOut


class NewLinks:
    """Collects the names of each file of a layer that has more than one."""

    def __init__(self) -> None:
        self._names: dict[int, list[tuple[RelPath, bool]]] = {}

    def saw(self, path: RelPath, at: os.stat_result, is_copy: bool) -> None:
        """`is_copy`: of the file that stands at the same path in the tree."""
        if at.st_nlink > 1:
            self._names.setdefault(at.st_ino, []).append((path, is_copy))

    def broken(self) -> list[LeftOut]:
        """Those that will not be names of the same file."""
        out = []
        for names in self._names.values():
            stay = sorted(path for path, is_copy in names if is_copy)
            if stay:
                why = (
                    f"arrives as a file of its own: in the world it was {display(stay[0])}, linked"
                )
                out += [LeftOut(path, why) for path, is_copy in names if not is_copy]
        return sorted(out)
