"""The plan that applies a world's change to the tree: which paths, and how each is changed.

Apply does what the command did. A file that the command wrote in place is rewritten in place, a
file that it replaced is renamed in, and a directory that the tree lacks is renamed as a whole.
Paths that history excludes are moved as they are, and what they replace goes to the trash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from substrate.model import ABSENT, Change, Kind, Node, RelPath, ancestors
from substrate.workspace.apply import How, LayerDiff, LayerEntry, Op, Plan

#: In an entry's detail: how many paths inside a `.git` it changed.
IN_GIT = "in_git"
#: In an entry's detail: paths inside a `.git` that were not there before, except objects.
GIT_CREATED = "git_created"
#: In the detail of an undo or redo: paths inside a `.git` that it exchanged, except objects.
GIT_BACK = "git_back"
#: In the detail of an undo: how many object files it restored.
GIT_OBJECTS = "git_objects"


class Touch(NamedTuple):
    """The final times and owner of a path."""

    path: RelPath
    times: tuple[int, int]
    owner: tuple[int, int]
    #: The command changed nothing else of this path: skip it if the file was written since.
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
    shut: Mapping[RelPath, Node] | None = None,
) -> Arrival:
    """`wanted`: the changes that history will record; `to_trash`: what else must be removed;
    `shut`: other users' files that history could not read and that the command replaced."""
    making = _Making(diff, wanted, set(conflicts), may_rename, shut or {})
    making.run()
    # Before a directory arrives as a whole, remove from it what must not arrive.
    making.marks += [
        (one.path, 0)
        for one in diff.left_out
        if one.path not in making.entries and making.is_covered(one.path)
    ]
    # An excluded directory whose name a recorded file takes goes to the trash with that operation.
    taken = {op.path for op in making.ops}
    making.ops += [op for op in to_trash if op.path not in taken and not making.is_covered(op.path)]
    return Arrival(
        Plan.of(making.ops, beyond_history=True),
        tuple(making.touches),
        # The deepest first: cleaning a directory may remove access to what is below it.
        tuple(sorted(making.marks, reverse=True)),
    )


def paths_in_git(plan: Plan) -> int:
    """How many paths inside a `.git` change: `undo` must not overlook a command that did that."""
    return sum((b"/" + op.path).find(b"/.git/") >= 0 for op in plan.ops)


def created_in_git(plan: Plan) -> list[RelPath]:
    """New files inside a `.git`, except objects: `undo --with-git` removes them."""
    return [
        op.path
        for op in plan.ops
        if op.path.find(b".git/") >= 0 and op.path.find(b".git/objects/") < 0
        and op.expect == ABSENT and op.become.kind is not Kind.DIRECTORY
    ]  # fmt: skip


class _Making:
    def __init__(
        self,
        diff: LayerDiff,
        wanted: Iterable[Change],
        conflicts: set[RelPath],
        may_rename: bool,
        shut: Mapping[RelPath, Node],
    ) -> None:
        self.entries = {one.path: one for one in diff.entries}
        self.wanted = {change.path: change for change in wanted}
        self.conflicts = conflicts
        #: Directories that cannot be moved as a whole: they contain a path in conflict.
        self.disputed = {above for path in conflicts for above in ancestors(path)}
        self.may_rename = may_rename
        self.shut = shut
        self.ops: list[Op] = []
        self.touches: list[Touch] = []
        self.marks: list[tuple[RelPath, int]] = []
        self.whole: set[RelPath] = set()
        #: The prefix of every path in the last directory of `whole`.
        self.last_whole = b""

    def run(self) -> None:
        # The entries are nearly sorted already: sorting this list is faster than sorting a set.
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
        if change.path in self.shut:
            change = change._replace(old=self.shut[change.path])
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
        elif entry.new.kind is Kind.FILE and entry.new == old:
            # Setting a time needs ownership only: the file stays, whatever its mode.
            self.touch(entry, only=True)
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
