"""Taking back what entries did to excluded paths: from the trash, and into it.

Each entry is reversed on its own, the newest first. The present content of a path goes to the
trash under the id of the undo, so that a redo (or `recover restore`) restores it. A path that was
changed after the entry keeps its later state unless the caller forces it.

A command can turn an unrecorded file into a recorded one at the same path, or the reverse
(`mv own theirs` over another user's unreadable file). The apply of the recorded state runs first:

    wanted state of the path    what was there before the entry    what happens here
    absent                      an item in the trash               it comes back to the free path
    a recorded file             nothing that history knew          nothing: the apply replaced it
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import changed_after
from substrate.history.record import Excluded, excluded_paths
from substrate.history.store import Entry, HistoryStore
from substrate.model import ABSENT, Node, RelPath, ancestors, display, is_within
from substrate.objects.snapshots import Take
from substrate.system import clock
from substrate.workspace.apply import Kept, Trash, TrashEntry, TrashReason

_GAVE_WAY = Kept(TrashReason.REPLACED_BY_UNDO)
_OWN_GIT = b".git"


class _Expired(str):
    """Why a path is left whose old state has expired."""

    __slots__ = ()


_GONE = _Expired("its old state is no longer in the trash")


class Later(Enum):
    """What happens to a path that was changed after the entry that is taken back."""

    STAYS = ""
    GIVES_WAY = "gives way"
    #: Like GIVES_WAY, and a path that cannot be restored is a conflict.
    EXACT = "exact"
    #: No existing path is replaced: `--take ours`.
    LEAVES_ALL = "leaves all"

    @classmethod
    def of(cls, take: Take | None) -> Later:
        if take is Take.THEIRS:
            return cls.GIVES_WAY
        return cls.LEAVES_ALL if take is Take.OURS else cls.STAYS


class Undone(NamedTuple):
    """One entry that is being taken back: all of it, or some of its paths."""

    entry: Entry
    paths: tuple[RelPath, ...] = ()


class Turn(NamedTuple):
    """One path to reverse; `item` is what was there before, None if nothing was."""

    path: RelPath
    item: TrashEntry | None
    #: Whether existing content at the path may be moved to the trash.
    may_give_way: bool = True


class Turns(NamedTuple):
    """What to do, in this order, and the paths to leave, with the reason."""

    todo: tuple[Turn, ...] = ()
    left: Mapping[RelPath, str] = {}
    #: Paths with unrecorded content that the apply of the recorded state may replace.
    replaced: frozenset[RelPath] = frozenset()

    def describe(self) -> list[str]:
        """What would be done, for a dry run, and what can no longer be done."""
        done = [
            f"bring back {display(one.path)} from the trash"
            if one.item
            else f"move {display(one.path)} to the trash"
            for one in self.todo
        ]
        return done + [
            f"{display(path)} cannot be brought back: {why}"
            for path, why in self.left.items()
            if is_lost(why)
        ]


class Back(NamedTuple):
    """What was done."""

    restored: tuple[RelPath, ...] = ()
    deleted: tuple[RelPath, ...] = ()
    #: Paths that stay as they are, with the reason.
    left: Mapping[RelPath, str] = {}
    did: Excluded = Excluded()

    @property
    def is_anything(self) -> bool:
        return bool(self.restored or self.deleted)

    def detail(self) -> dict[str, object]:
        """For the entry that the undo becomes."""
        did = self.did.to_detail()
        return {**did, excluded_paths.ARRIVED: clock.now_ns()} if did else {}

    def notes(self) -> list[str]:
        notes = [f"brought back from the trash: {display(path)}" for path in self.restored]
        notes += [f"moved to trash: {display(path)}" for path in self.deleted]
        for path, why in self.left.items():
            what = "cannot be brought back" if is_lost(why) else "stays as it is"
            notes.append(f"{display(path)} {what}: {why}")
        return notes


def is_lost(why: str) -> bool:
    """Whether a path of `Turns.left` is left because its old state has expired."""
    return isinstance(why, _Expired)


def plan(
    store: HistoryStore,
    undone: Sequence[Undone],
    how: Later,
    wanted: Mapping[RelPath, Node] | None = None,
) -> Turns:
    """Plan taking back these entries (newest first) for excluded paths. Changes nothing.

    `wanted`: the recorded states that are applied before the turns.
    """
    planning = _Planning(store, how, wanted or {})
    for one in _not_cancelled(store, undone):
        planning.add(one)
    return Turns(tuple(planning.todo.values()), planning.left, frozenset(planning.replaced))


class _Planning:
    def __init__(self, store: HistoryStore, how: Later, wanted: Mapping[RelPath, Node]) -> None:
        self.store = store
        self.trash = Trash(store.trash_dir)
        self.how = how
        self.wanted = wanted
        #: By path: if several entries changed one path, the oldest decides what comes back.
        self.todo: dict[RelPath, Turn] = {}
        self.left: dict[RelPath, str] = {}
        self.replaced: set[RelPath] = set()

    def add(self, one: Undone) -> None:
        entry = one.entry
        items = self.items_of(entry, one.paths)
        did = excluded_paths.of_detail(entry.detail).within(one.paths)
        for path in did.created:
            # A repository that the command made may have commits by now: only `--with-git`
            # removes it.
            if path != _OWN_GIT and self.is_there(path):
                self.turn(Turn(path, None), entry)
        for path in (*did.changed, *did.removed):
            item = items.pop(path, None)
            if item is None:
                self.leave_as_is(path, self.why_gone(entry))
            else:
                self.turn(Turn(path, item), entry)
        for path in did.replaced:
            if path not in items:
                self.leave_as_is(path, self.why_gone(entry))
        for path, item in items.items():  # saved at that very moment, or by an older version
            self.turn(Turn(path, item, may_give_way=False), entry)

    def items(self, under: str, scope: Sequence[RelPath]) -> dict[RelPath, TrashEntry]:
        return {
            item.path: item
            for item in self.trash.under(under)
            if not excluded_paths.is_in_git(item.path)
            and (not scope or any(is_within(item.path, one) for one in scope))
        }

    def items_of(self, entry: Entry, scope: Sequence[RelPath]) -> dict[RelPath, TrashEntry]:
        """The entry's items. If an undo took one back, its redo put it into the redo's trash."""
        found = self.items(entry.command_id, scope)
        known = excluded_paths.of_detail(entry.detail).in_trash
        ledger = self.store.ledger
        again = [
            by for undo in ledger.ever_reversed_by(entry.seq)
            for by in ledger.ever_reversed_by(undo.seq)
        ]  # fmt: skip
        for by in sorted(again, key=lambda by: -by.seq):
            for path, item in self.items_of(by, scope).items():
                if path in known:
                    found.setdefault(path, item)
        return found

    def turn(self, turn: Turn, entry: Entry) -> None:
        path = turn.path
        becomes = self.wanted.get(path)
        if becomes is not None and becomes != ABSENT:
            self.turn_below_recorded(turn, entry)
            return
        if becomes == ABSENT and _is_unrecorded(turn):
            # The apply frees the path. If it cannot, the content that stays must not move.
            self.todo[path] = turn._replace(may_give_way=False)
            return
        moves_before = not self.todo.keys().isdisjoint((path, *ancestors(path)))
        if moves_before or not self.is_there(path):
            pass  # free, or an earlier turn puts content there that no other process changed
        elif not turn.may_give_way or self.how is Later.LEAVES_ALL:
            self.leave_as_is(path, _stays(turn, f"{display(path)} is taken"))
            return
        elif self.how is Later.STAYS and changed_after.is_changed(self.store, entry, path):
            self.leave_as_is(path, _stays(turn, "it was changed since"))
            return
        self.todo[path] = turn

    def turn_below_recorded(self, turn: Turn, entry: Entry) -> None:
        """The apply writes a recorded state to the path, and moves what is there to the trash."""
        path = turn.path
        if turn.item is not None:
            self.leave_as_is(path, _stays(turn, f"{display(path)} is taken"))
        elif self.how is Later.STAYS and changed_after.is_changed(self.store, entry, path):
            self.leave_as_is(path, "it was changed since")
        elif self.how is not Later.LEAVES_ALL:
            self.replaced.add(path)

    def leave_as_is(self, path: RelPath, why: str) -> None:
        self.left.setdefault(path, why)

    def why_gone(self, entry: Entry) -> str:
        under = f"{entry.command_id}/"
        if any(one.entry_id.startswith(under) for one in self.trash.damaged()):
            return "the record of its old state in the trash is damaged; see `substrate fsck`"
        return _GONE

    def is_there(self, path: RelPath) -> bool:
        return os.path.lexists(self.at(path))

    def at(self, path: RelPath) -> Path:
        return self.store.root / os.fsdecode(path)


def _is_unrecorded(turn: Turn) -> bool:
    """Whether the item is what the entry replaced, not a copy that an apply saved for safety."""
    item = turn.item
    return item is not None and (turn.may_give_way or item.why.is_outside_history)


def _stays(turn: Turn, why: str) -> str:
    if turn.item is None:
        return why
    under = turn.item.entry_id.partition("/")[0]
    how = f"`substrate recover restore {under} {display(turn.path)}`"
    return f"{why}; its old state stays in the trash: {how}"


def _not_cancelled(store: HistoryStore, undone: Sequence[Undone]) -> list[Undone]:
    """Without pairs of a command and its undo: together they changed nothing."""
    chosen = {one.entry.seq: one for one in undone}
    gone: set[int] = set()
    for one in sorted(undone, key=lambda one: -one.entry.seq):
        seq = one.entry.seq
        targets = [] if seq in gone else store.ledger.reversed_whole_by(seq)
        if targets and all(target in chosen for target in targets):
            gone |= {seq, *targets}
    return [one for one in undone if one.entry.seq not in gone]


def carry_out(store: HistoryStore, turns: Turns, under: str) -> Back:
    """Do the turns path by path; a second run after a kill continues with what is left."""
    trash = Trash(store.trash_dir)
    left = dict(turns.left)
    restored: dict[RelPath, None] = {}
    deleted: dict[RelPath, None] = {}
    created: set[RelPath] = set()
    changed: set[RelPath] = set()
    removed: set[RelPath] = set()
    for path, item, may_give_way in turns.todo:
        stood = may_give_way and _put_away(trash, store, path, under)
        if item is None:
            if stood:
                deleted[path] = None
                removed.add(path)
            continue
        try:
            trash.restore(item, store.anchor.top)
        except RefusedError as error:
            left[path] = f"{error.message} (its old state is in {item.location})"
            continue
        deleted.pop(path, None)
        restored[path] = None
        (changed if stood else created).add(path)
    did = Excluded(*(tuple(sorted(paths)) for paths in (created, changed, removed)))
    return Back(tuple(restored), tuple(deleted), left, did)


def _put_away(trash: Trash, store: HistoryStore, path: RelPath, under: str) -> bool:
    """Whether something was there and was moved; if it cannot be moved, `restore` reports it."""
    try:
        trash.keep(store.anchor.top, path, under, _GAVE_WAY)
    except (NotFoundError, OSError):
        return False
    return True
