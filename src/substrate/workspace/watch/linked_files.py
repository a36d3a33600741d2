"""Files with several hard links: inotify does not report a write through a name outside the tree.

The watch compares these by `lstat` each time it is asked. The cost follows their number. Not found:
a file of the tree that gets its first other name while it is watched, and no event of its own since
(the kernel does not report `link` to the directory of the old name).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from substrate.model import RelPath
from substrate.system import clock

#: A file that changed this shortly before it was looked at may change again with the same times.
_RACY_NS = 50_000_000

#: What shows that a file is unchanged; empty: unknown, so the file stays a suspect.
Signature = tuple[int, ...]


class LinkedFiles:
    def __init__(self, root: bytes) -> None:
        self._root = root
        self._known: dict[RelPath, Signature] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, path: RelPath, found: os.stat_result) -> None:
        """Remember the file if it has other names, and forget it if it has not."""
        if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
            self._known[path] = _signature(found)
        else:
            self._known.pop(path, None)

    def look(self, path: RelPath) -> None:
        """The same for a file that an event named."""
        try:
            self.note(path, os.lstat(os.path.join(self._root, path)))
        except OSError:
            self._known.pop(path, None)

    def changed(self) -> Iterator[RelPath]:
        """The files that may have changed since the last look."""
        for path, known in list(self._known.items()):
            self.look(path)
            if path in self._known and (not known or self._known[path] != known):
                yield path

    def table(self) -> dict[bytes, Signature]:
        """For `take_over` in the process that watches from now on."""
        return {bytes(path): known for path, known in self._known.items()}

    def take_over(self, table: Mapping[bytes, Iterable[int]]) -> None:
        self._known.update({RelPath(path): tuple(known) for path, known in table.items()})


def _signature(found: os.stat_result) -> Signature:
    if clock.now_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < _RACY_NS:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
