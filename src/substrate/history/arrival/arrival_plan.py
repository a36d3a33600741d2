"""From what a world brings to the plan that brings it: which path, in which way.

Apply does what the command did. A file written to where it stood is rewritten where it stands,
one that was replaced is renamed in, a directory that the tree lacks is renamed whole. What
history leaves out is moved as it is, and what it takes the place of goes to the trash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import RelPath, ancestors
from substrate.workspace.layer import LayerDiff, LayerEntry
from substrate.workspace.plan import How, Op, Plan


class Touch(NamedTuple):
    """Times and owner that a path shall have in the end."""

    path: RelPath
    times: tuple[int, int]
    owner: tuple[int, int]
    #: It is all that happened to the path: not for a file that somebody changed since.
    only: bool


class Arrival(NamedTuple):
    plan: Plan
    touches: tuple[Touch, ...]
    #: Paths of the layer to clean before they are moved, with the mode they arrive with.
    marks: tuple[tuple[RelPath, int], ...]


def arrival(
    diff: LayerDiff,
    wanted: Iterable[Change],
    to_trash: Iterable[Op],
    conflicts: Iterable[RelPath],
    *,
    may_rename: bool,
) -> Arrival:
    """`wanted`: what history will say; `to_trash`: what else must give way."""
    making = _Making(diff, wanted, set(conflicts), may_rename)
    making.run()
    # What must not arrive goes from a directory before that arrives whole.
    making.marks += [
        (one.path, 0)
        for one in diff.left_out
        if one.path not in making.entries and making.is_covered(one.path)
    ]
    making.ops += [op for op in to_trash if not making.is_covered(op.path)]
    return Arrival(
        Plan.of(making.ops, beyond_history=True),
        tuple(making.touches),
        # The deepest first: cleaning a directory may shut it.
        tuple(sorted(making.marks, reverse=True)),
    )


class _Making:
    def __init__(
        self,
        diff: LayerDiff,
        wanted: Iterable[Change],
        conflicts: set[RelPath],
        may_rename: bool,
    ) -> None:
        self.entries = {one.path: one for one in diff.entries}
        self.wanted = {change.path: change for change in wanted}
        self.conflicts = conflicts
        #: Directories that cannot come whole: something in them is left to somebody else.
        self.disputed = {above for path in conflicts for above in ancestors(path)}
        self.may_rename = may_rename
        self.ops: list[Op] = []
        self.touches: list[Touch] = []
        self.marks: list[tuple[RelPath, int]] = []
        self.whole: set[RelPath] = set()
        #: How everything in the last of them begins.
        self.last_whole = b""

    def run(self) -> None:
        # Nearly in order already, which makes sorting quick, unlike a set of them all.
        others = self.wanted.keys() - self.entries.keys()
        for path in sorted([*self.entries, *others]):
            entry = self.entries.get(path)
            if self.is_covered(path):
                if entry is not None and entry.is_marked:
                    self.note_mark(entry)
                continue
            if path in self.conflicts:
                continue
            if entry is not None and entry.beyond:
                self.beyond(entry)
            elif path in self.wanted:
                self.tracked(self.wanted[path], entry)
            elif entry is not None and entry.is_there and entry.new != ABSENT:
                self.touch(entry, only=entry.new.kind is not Kind.DIRECTORY)

    def is_covered(self, path: RelPath) -> bool:
        if not self.whole:
            return False
        return path.startswith(self.last_whole) or not self.whole.isdisjoint(ancestors(path))

    def tracked(self, change: Change, entry: LayerEntry | None) -> None:
        if entry is not None and not entry.is_there and entry.new != ABSENT:
            return  # another name of a file that is rewritten in place
        lies = entry.new if entry is not None and entry.is_there else None
        as_it_lies = lies is not None and lies == change.new != ABSENT
        if entry is None or not as_it_lies:
            self.ops.append(Op(change.path, change.old, change.new, _way(entry, change)))
        elif change.new.kind is Kind.DIRECTORY:
            free = change.old.kind is not Kind.DIRECTORY
            is_undisputed = entry.path not in self.disputed
            if entry.is_whole and free and self.may_rename and is_undisputed:
                self.move(entry, change.old)
            else:
                self.ops.append(Op(change.path, change.old, change.new))
                self.touch(entry)
        elif _way(entry, change) is How.IN_PLACE or not self.may_rename:
            self.ops.append(Op(change.path, change.old, change.new, _way(entry, change)))
            self.touch(entry)
        else:
            self.move(entry, change.old)

    def beyond(self, entry: LayerEntry) -> None:
        old = entry.old
        if entry.path in self.wanted:
            old = self.wanted[entry.path].old  # it leaves history with this command
        if entry.new == ABSENT:
            self.ops.append(Op(entry.path, old, ABSENT))
        elif entry.new.kind is not Kind.DIRECTORY or entry.is_whole:
            self.move(entry, old)
        else:
            if old.mode != entry.new.mode and old.kind is Kind.DIRECTORY:
                self.ops.append(Op(entry.path, old, entry.new))
            self.touch(entry)

    def move(self, entry: LayerEntry, old: Node) -> None:
        self.ops.append(Op(entry.path, old, entry.new, How.FROM_LAYER))
        self.note_mark(entry)
        if entry.new.kind is Kind.DIRECTORY:
            self.whole.add(entry.path)
            self.last_whole = entry.path + b"/"
        if not entry.beyond or entry.new.kind is not Kind.DIRECTORY:
            self.touch(entry)

    def touch(self, entry: LayerEntry, *, only: bool = False) -> None:
        self.touches.append(Touch(entry.path, entry.times, entry.owner, only))

    def note_mark(self, entry: LayerEntry | None) -> None:
        if entry is not None and entry.is_marked and entry.new != ABSENT:
            self.marks.append((entry.path, entry.new.mode))


def _way(entry: LayerEntry | None, change: Change) -> How:
    both_files = change.old.kind is change.new.kind is Kind.FILE
    return How.IN_PLACE if entry is not None and entry.in_place and both_files else How.REPLACE
