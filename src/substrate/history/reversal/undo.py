"""Undo and redo: take back one command, or a scope of them, anywhere on the line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import changed_owners
from substrate.history.query import Scope, Target, scopes
from substrate.history.record import excluded_paths, live_parts, sessions
from substrate.history.reversal.compute_reversal import Reversal, Step, text_merger
from substrate.history.reversal.restore import (
    SKIPPED,
    Outcome,
    Undoing,
    note_only,
    perform,
)
from substrate.history.reversal.restore_excluded import Later
from substrate.history.store import (
    REVERSING_KINDS,
    TO_MOVE,
    Entry,
    HistoryStore,
    NewEntry,
    is_shared,
)
from substrate.model import RelPath, display, is_within
from substrate.objects.snapshots import Blobs, Snapshot, Take
from substrate.objects.store import Batch
from substrate.system import clock, ids
from substrate.workspace.apply import Plan

#: How many file names an error lists.
_SHOWN_NAMES = 5


class Branches(Enum):
    """What happens to the refs that an undone command moved in the user's repository."""

    WITH = "with-git"
    #: They stay; only files are taken back.
    STAY = "files-only"


class Choice(NamedTuple):
    """How an undo or rollback proceeds."""

    paths: tuple[RelPath, ...] = ()
    take: Take | None = None
    skip_conflicts: bool = False
    dry_run: bool = False
    #: None: not given. Then an undo of a command that moved refs is refused.
    branches: Branches | None = None
    #: The refs that the caller moves back after the files: see `TO_MOVE`.
    moving: Mapping[str, object] = {}
    #: The `plan_id` of a preview: any other plan is refused, and nothing is changed.
    expected: str | None = None
    #: For a dry run: called with its outcome while the store can still read merged contents.
    look: Callable[[HistoryStore, Outcome], None] | None = None


def announcing(new: NewEntry, choice: Choice) -> NewEntry:
    """A new entry that names the refs to move after its files."""
    if not choice.moving:
        return new
    return new._replace(detail={**new.detail, TO_MOVE: dict(choice.moving)})


def undo_target(store: HistoryStore, target: Target, choice: Choice, agent: str | None) -> Outcome:
    """Take back what an id names: a command, or an undo, or an outside edit."""
    if target.recovery is not None or target.entry is None:
        raise RefusedError(
            f"{target.text!r} is a state, not a command: it cannot be undone",
            hint=f"bring that state back with `substrate recover restore {target.text}`",
        )
    if target.holder is not None:
        raise RefusedError(
            f"{target.entry.command_id} is no longer kept on its own: it is part of"
            f" {target.holder.command_id} ({target.holder.command})",
            hint=scopes.hint_of_holder(target.holder),
        )
    return undo_entry(store, target.entry, choice, agent)


def undo_entry(store: HistoryStore, entry: Entry, choice: Choice, agent: str | None) -> Outcome:
    _check_undoable(store, entry, choice)
    kind = _kind_for(entry)
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        all_of_it = live_parts.whole(store, entry)
        for step in _steps(store, all_of_it):
            reversal.take_back(step)
        hint = f"`substrate diff {entry.command_id} --stat` lists what it changed"
        _check_touched(store, [entry, *all_of_it], choice.paths, entry.command_id, hint)
        seqs = {entry.seq, *(e.seq for e in all_of_it)}
        undoing = [Undoing(seq, choice.paths) for seq in seqs]
        new = new_entry(store, kind, f"{kind} of {entry.command_id}", entry.session_id, agent)
        return perform(
            store, batch, reversal.wish(), announcing(new, choice), undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
            later=Later.of(choice.take),
        )  # fmt: skip


def without_files(entry: Entry) -> Outcome:
    """The outcome of taking back a command that changed no file; the caller does the rest."""
    what = f"{_kind_for(entry)} of {entry.command_id}"
    return Outcome(None, [], [], [], {}, None, [], Plan(()), undone=(entry.seq,), what=what)


def new_undo(store: HistoryStore, entry: Entry, agent: str | None) -> NewEntry:
    """The entry for taking back a command that has no commit."""
    what = without_files(entry).what
    return new_entry(store, _kind_for(entry), what, entry.session_id, agent)


def note_undone(
    store: HistoryStore, entry: Entry, new: NewEntry, detail: dict[str, object]
) -> Entry:
    """Record `new`, the undo of `entry`; `detail`: what it moved in the user's repository."""
    new = new._replace(detail={**new.detail, **detail})
    return note_only(store, new, [Undoing(entry.seq)], is_something=True)


def _kind_for(entry: Entry) -> str:
    return "redo" if entry.kind in REVERSING_KINDS else "undo"


def undo_scope(store: HistoryStore, scope: Scope, choice: Choice, agent: str | None) -> Outcome:
    """Take back what a scope's entries changed, and nothing else: other work stays, merged."""
    entries = reversible(scope.entries)
    if not entries:
        raise NotFoundError(f"{scope.name} changed nothing", hint="`substrate log` shows all")
    hint = f"`substrate diff {scope.words} --stat` lists what it changed"
    _check_touched(store, entries, choice.paths, scope.name, hint)
    within = {entry.seq for entry in entries}
    left = [e for e in entries if b"" not in store.ledger.reversed_paths(e.seq, within)]
    if all(_is_taken_back(store, entry, within) for entry in left):
        raise RefusedError(
            f"{scope.name} is already undone", hint="`substrate redo` brings it back"
        )
    new = new_entry(store, "undo", f"undo of {scope.name}", scope.session_id, agent)
    return _undo_all(store, left, new, choice)


def _is_taken_back(store: HistoryStore, entry: Entry, within: set[int]) -> bool:
    """Whether it is undone at present, or only takes back others of the same scope."""
    if b"" in store.ledger.reversed_paths(entry.seq):
        return True
    targets = store.ledger.taken_back_by(entry.seq)
    return bool(targets) and all(target.seq in within for target in targets)


def _undo_all(store: HistoryStore, entries: list[Entry], new: NewEntry, choice: Choice) -> Outcome:
    """Take back these entries, newest first, as one reversal."""
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        line = store.ledger.live(after_pos=entries[-1].pos - 1, committed=True)
        for step in steps(store, line, {e.seq for e in entries}):
            reversal.take_back(step)
        undoing = [Undoing(e.seq, choice.paths) for e in entries]
        return perform(
            store, batch, reversal.wish(), announcing(new, choice), undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
            later=Later.of(choice.take),
        )  # fmt: skip


def reversible(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that changed files, recorded or excluded."""
    beyond = (excluded_paths.KEY, changed_owners.KEY)
    return [e for e in entries if e.commit is not None or any(key in e.detail for key in beyond)]


def reversal_for(
    store: HistoryStore, batch: Batch, choice: Choice, onto: Snapshot | None = None
) -> Reversal:
    """`onto`: the state to change, if it is not the tip."""
    rehearses = store.ledger.is_rehearsing
    scratch = Path(store.objects.objects_dir) if rehearses else store.dir / "journal"
    merge = text_merger(
        lambda base, ours, theirs, favour: store.git.merge_file(
            base, ours, theirs, favor=favour, scratch=scratch
        )
    )
    blobs = Blobs(batch.read_blob, batch.add_blob, merge, keeps_appends=True)
    return Reversal(batch, onto or store.tip(), blobs, scope=choice.paths, take=choice.take)


def steps(store: HistoryStore, line: Sequence[Entry], chosen: set[int]) -> list[Step]:
    """The chosen entries as steps, newest first; adjacent entries on the line make one step.

    line (newest first):  c5* e4 c3* c2* c1      chosen: *
    steps:                (e4 → c5), (c1 → c3)
    """
    out: list[Step] = []
    run: list[Entry] = []
    for entry in [*line, None]:
        if entry is not None and entry.seq in chosen:
            run.append(entry)
        elif run:
            newest, oldest = run[0].commit, run[-1].commit
            assert newest is not None
            assert oldest is not None
            before = store.parent_snapshot(oldest)
            assert before is not None, "the baseline is never taken back"
            out.append(Step(before, store.snapshot_of(newest)))
            run = []
    return out


def new_entry(
    store: HistoryStore, kind: str, command: str, session_id: str | None, agent: str | None
) -> NewEntry:
    if session_id is None:
        latest = sessions.latest(store.ledger)
        session_id = latest.session_id if latest else None
    return NewEntry(
        ids.new_id("c"), kind, clock.now_ns(), command, session_id=session_id, agent_id=agent,
        span_id=ids.new_id("spn"), exit=0,
    )  # fmt: skip


def _steps(store: HistoryStore, entries: list[Entry]) -> list[Step]:
    """The steps of one command: usually one; more if it was recorded in parts."""
    if len(entries) <= 1:
        return [_step(store, entry) for entry in entries]
    line = store.ledger.live(after_pos=entries[-1].pos - 1, committed=True)
    return steps(store, line, {entry.seq for entry in entries})


def _step(store: HistoryStore, entry: Entry) -> Step:
    assert entry.commit is not None
    before = store.parent_snapshot(entry.commit)
    if before is None:
        raise RefusedError(
            "the baseline is where history begins; it cannot be undone",
            hint="`substrate log` lists what can",
        )
    return Step(before, store.snapshot_of(entry.commit))


def _check_undoable(store: HistoryStore, entry: Entry, choice: Choice) -> None:
    if is_shared(entry):
        raise RefusedError(
            f"{entry.command_id} holds outside edits or the work of several sessions: it cannot be"
            " undone as one",
            hint=f"`substrate diff {entry.command_id}` shows what changed;"
            f" `substrate rollback --to ID --exact` goes back to a state before it",
        )
    if not live_parts.whole(store, entry) and not reversible([entry]):
        raise NotFoundError(
            f"{entry.command_id} changed no files: there is nothing to undo",
            hint="`substrate log` shows how many files each command changed",
        )
    undone = store.ledger.reversed_paths(entry.seq)
    skipped = _skipped(store, entry)
    if b"" in undone and _covered(choice.paths, skipped):
        return  # an earlier undo left these paths out because of a conflict
    if b"" in undone and skipped and not choice.paths:
        names = ", ".join(display(RelPath(path)) for path in sorted(skipped)[:_SHOWN_NAMES])
        raise RefusedError(
            f"{entry.command_id} is already undone, but for what was left because of a conflict:"
            f" {names}{', …' if len(skipped) > _SHOWN_NAMES else ''}",
            hint=f"to bring back the old of these, too: `substrate undo {entry.command_id}"
            f" --path {_typed(store, min(skipped))} --take theirs`;"
            " to bring the rest back: `substrate redo`",
        )
    if b"" in undone or _covered(choice.paths, undone):
        raise already_undone(entry)


def _typed(store: HistoryStore, path: bytes) -> str:
    """A path as an argument that is right in every directory."""
    return shlex.quote(str(store.root / os.fsdecode(path)))


def already_undone(entry: Entry) -> RefusedError:
    return RefusedError(
        f"{entry.command_id} is already undone", hint="`substrate redo` brings it back"
    )


def _covered(paths: Sequence[RelPath], by: set[bytes]) -> bool:
    """Whether paths were named, and each of them is within one of `by`."""
    return bool(paths) and all(any(is_within(p, RelPath(b)) for b in by) for p in paths)


def _skipped(store: HistoryStore, entry: Entry) -> set[bytes]:
    """The paths that the undos of an entry skipped because of a conflict with later work."""
    out: set[bytes] = set()
    for undo in store.ledger.reversed_by(entry.seq):
        paths = undo.detail.get(SKIPPED)
        out.update(bytes.fromhex(p) for p in (paths if isinstance(paths, list) else ()))
    return out


def untouched(
    store: HistoryStore, entries: Iterable[Entry], paths: Sequence[RelPath]
) -> list[RelPath]:
    """Those of the paths that none of the entries changed, nor anything below them."""
    if not paths:
        return []
    changed: set[RelPath] = set()
    for entry in entries:
        if entry.commit is not None:
            changed.update(c.path for c in live_parts.changes_of_all(store, [entry]))
        changed.update(excluded_paths.of_detail(entry.detail).paths())
        changed.update(one.path for one in changed_owners.of_detail(entry.detail))
    return [path for path in paths if not any(is_within(c, path) for c in changed)]


def _check_touched(
    store: HistoryStore, entries: Iterable[Entry], paths: Sequence[RelPath], what: str, hint: str
) -> None:
    """Each requested path must be, or contain, a path that the work to take back changed."""
    left = untouched(store, entries, paths)
    if left:
        raise NotFoundError(f"{what} did not change {display(left[0])}", hint=hint)
