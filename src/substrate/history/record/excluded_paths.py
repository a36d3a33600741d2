"""What an entry did to excluded paths: named in its detail, the old state kept in the trash.

    created   nothing was there before, or a recorded file
    changed   the old state is in the trash, under the entry's id
    removed   the same
    replaced  the same, and the new state is recorded: the path itself is not excluded any more

A directory that changed as a whole is one path: `rm -rf node_modules` is one removed path. Paths
inside a `.git` are not here: see `recorder/user_git/restore_git_bytes.py`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath, is_within
from substrate.workspace.apply import Item, State

#: In an entry's detail.
KEY = "excluded"
#: In an entry's detail: when its last path arrived. A later ctime means another writer.
ARRIVED = "arrived_ns"


class Excluded(NamedTuple):
    created: tuple[RelPath, ...] = ()
    changed: tuple[RelPath, ...] = ()
    removed: tuple[RelPath, ...] = ()
    replaced: tuple[RelPath, ...] = ()

    @property
    def in_trash(self) -> frozenset[RelPath]:
        """The paths whose old state was moved to the trash."""
        return frozenset((*self.changed, *self.removed, *self.replaced))

    def paths(self) -> list[RelPath]:
        """The excluded paths."""
        return sorted({*self.created, *self.changed, *self.removed})

    def within(self, scope: Collection[RelPath]) -> Excluded:
        """Only what is at or below one of `scope`; all of it for an empty scope."""
        if not scope:
            return self
        return Excluded(
            *(tuple(p for p in paths if any(is_within(p, one) for one in scope)) for paths in self)
        )

    def touches(self, scope: RelPath) -> bool:
        """Whether anything at or below `scope` changed, also as part of a directory."""
        return any(is_within(p, scope) or is_within(scope, p) for p in self.paths())

    def to_detail(self) -> dict[str, object]:
        """For an entry's detail; empty if there are no such paths."""
        said = {name: packed(paths) for name, paths in self._asdict().items() if paths}
        return {KEY: said} if said else {}


def of_detail(detail: Mapping[str, object]) -> Excluded:
    found = detail.get(KEY)
    if not isinstance(found, dict):
        return Excluded()
    return Excluded(**{name: unpacked(found.get(name)) for name in Excluded._fields})


def of_plan(items: Iterable[Item], recorded: Mapping[RelPath, Node]) -> Excluded:
    """What a plan, already checked against the tree, does outside history.

    `recorded`: the new states that history records.
    """
    created, changed, removed, replaced = [], [], [], []
    for item in items:
        op, now = item.op, item.seen.node.kind
        if item.state is not State.TODO or is_in_git(op.path):
            continue
        if op.path in recorded:
            if recorded[op.path] == ABSENT != op.become:
                created.append(op.path)  # it leaves history: it grew beyond the limit
            elif recorded[op.path] != ABSENT and item.keep and item.keep.is_outside_history:
                replaced.append(op.path)
        elif op.become.kind is Kind.ABSENT:
            removed.append(op.path)
        elif op.become.kind is Kind.DIRECTORY and not item.is_whole_directory:
            continue  # at most its mode changes: its content has its own operations
        elif (now if not item.unseen else op.expect.kind) is Kind.ABSENT:
            created.append(op.path)
        else:
            changed.append(op.path)
    return Excluded(tuple(created), tuple(changed), tuple(removed), tuple(replaced))


def is_in_git(path: RelPath) -> bool:
    """Inside a git directory, as opposed to being one."""
    return b".git" in path.split(b"/")[:-1]


def packed(paths: Iterable[RelPath]) -> str:
    """Compressed: a build can change thousands of paths with long common prefixes."""
    return base64.b64encode(zlib.compress(b"\0".join(paths), 1)).decode("ascii")


def unpacked(text: object) -> tuple[RelPath, ...]:
    """The inverse of `packed`; empty for anything that is not text."""
    if not text or not isinstance(text, str):
        return ()
    return tuple(RelPath(p) for p in zlib.decompress(base64.b64decode(text)).split(b"\0"))
