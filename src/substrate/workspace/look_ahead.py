"""Many files of the tree are looked at by a child, while the plan that needs it is being made.

What the child saw is what a look in that moment would have seen. Whatever it did not get to, or
found to be anything but a plain file of some size, is looked at by who needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath, split
from substrate.system.forked import MOST_PORTIONS, Forked, Portions, can_fork, fork, processors
from substrate.system.xattrs import Xattrs
from substrate.workspace.dirwalk import SEARCH, Walker
from substrate.workspace.probe import NOT_THERE, Seen, look

#: With fewer files a child costs more than it saves; and so many are taken at a time.
WORTH_A_FORK = 400
_CHUNK = 50

#: A file as it passes between processes: its number, content id, attributes, whether its times
#: are settled; mode, inode, device, links, owner, group, size; access, change, creation in ns.
_Row = tuple[int, bytes, Xattrs, bool, tuple[int, ...], tuple[int, int, int]]


@contextmanager
def looking(root: Path, paths: Sequence[RelPath]) -> Iterator[LookAhead | None]:
    """`paths` are best in order, so that those of one directory are neighbours."""
    begun = None
    if len(paths) >= WORTH_A_FORK and processors() > 1 and can_fork():
        begun = LookAhead.begin(root, paths)
    try:
        yield begun
    finally:
        if begun is not None:
            begun.close()


class LookAhead:
    """What is known of `paths` so far."""

    def __init__(self, root: Path, paths: Sequence[RelPath], portions: Portions, size: int) -> None:
        self._root = root
        self._paths = paths
        self._portions = portions
        self._size = size
        self._child: Forked | None = None
        self._is_open = True

    @classmethod
    def begin(cls, root: Path, paths: Sequence[RelPath]) -> LookAhead | None:
        size = max(_CHUNK, len(paths) // MOST_PORTIONS + 1)
        try:
            portions = Portions(-(-len(paths) // size))
        except OSError:
            return None
        begun = cls(root, paths, portions, size)
        begun._child = fork(begun._rows)
        return begun

    def result(self) -> dict[RelPath, Seen]:
        """All that was seen; what is left to do is shared with the child. Call it once."""
        found = {self._paths[number]: seen for number, seen in self._claimed()}
        said = self.close()
        for number, oid, xattrs, settled, plain, times in cast("list[_Row]", said or []):
            at = _as_stat(plain, times)
            node = Node(Kind.FILE, plain[0] & 0o7777, oid, xattrs)
            found[self._paths[number]] = Seen(node, at, settled)
        return found

    def close(self) -> object:
        if self._is_open:
            self._is_open = False
            for _ in self._portions.claims():
                pass  # nobody needs it any more: the child need not go on
            self._portions.close()
        child, self._child = self._child, None
        return child.answer() if child is not None else None

    def _claimed(self) -> Iterator[tuple[int, Seen]]:
        paths, walker = self._paths, Walker(self._root)
        for portion in self._portions.claims():
            start = portion * self._size
            above, directory = None, None
            try:
                for number in range(start, min(start + self._size, len(paths))):
                    here, name = split(paths[number])
                    try:
                        if here != above:
                            if directory is not None:
                                directory.close()
                            above, directory = here, None
                            directory = walker.directory(here, SEARCH)
                        seen = NOT_THERE if directory is None else look(directory, name)
                    except OSError:
                        continue
                    if seen.node.kind is Kind.FILE and seen.node.oid:
                        yield number, seen
            finally:
                if directory is not None:
                    directory.close()

    def _rows(self) -> list[_Row]:
        return [
            (number, seen.node.oid, seen.node.xattrs, seen.is_settled,
             (at.st_mode, at.st_ino, at.st_dev, at.st_nlink, at.st_uid, at.st_gid, at.st_size),
             (at.st_atime_ns, at.st_mtime_ns, at.st_ctime_ns))
            for number, seen in self._claimed()
            if (at := seen.stat) is not None
        ]  # fmt: skip


def _as_stat(plain: tuple[int, ...], times: tuple[int, int, int]) -> os.stat_result:
    seconds = (one // 10**9 for one in times)
    names = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")
    return os.stat_result((*plain, *seconds), dict(zip(names, times, strict=True)))
