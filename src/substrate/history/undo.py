"""Undo and redo: take back one command (or one session), wherever it stands on the line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import parts, sessions
from substrate.history.ledger import REVERSING_KINDS, Entry, NewEntry
from substrate.history.observe import changed_paths
from substrate.history.resolve import Target
from substrate.history.restore import SKIPPED, Outcome, Undoing, perform
from substrate.history.reversal import Reversal, Step, text_merger
from substrate.history.store import HistoryStore
from substrate.model.paths import RelPath, display, is_within
from substrate.objects.batch import Batch
from substrate.objects.merge import Blobs, Take
from substrate.system import clock, ids

#: How many file names an error lists.
_SHOWN_NAMES = 5


class Choice(NamedTuple):
    """How an undo or rollback proceeds."""

    paths: tuple[RelPath, ...] = ()
    take: Take | None = None
    skip_conflicts: bool = False
    dry_run: bool = False


def newest_undoable(store: HistoryStore, session_id: str, besides: Collection[str] = ()) -> Entry:
    """The session's newest command that changed files and is not yet (wholly) taken back.

    `besides`: ids of commands that are about to be.
    """
    for entry in store.ledger.iterate_live(session_id):
        if entry.command_id in besides:
            continue
        has_changed = entry.commit or entry.detail.get(parts.PARTS)
        if entry.kind in ("command", "squash") and has_changed and not _is_undone(store, entry):
            return entry
    raise NotFoundError(
        f"nothing to undo in session {session_id}",
        hint="`substrate log` lists the commands; `substrate undo ID` takes back any of them",
    )


def newest_redoable(store: HistoryStore, session_id: str) -> Entry:
    """The session's newest undo or rollback that still stands."""
    for entry in store.ledger.iterate_live(session_id):
        if entry.kind in REVERSING_KINDS and entry.commit and not _is_undone(store, entry):
            return entry
    raise NotFoundError(
        f"nothing to redo in session {session_id}", hint="only an undo or a rollback can be redone"
    )


def undo_target(store: HistoryStore, target: Target, choice: Choice, agent: str | None) -> Outcome:
    """Take back what an id names: a command (or undo, or outside edit), or a whole session."""
    if target.session is not None:
        return _undo_session(store, target.session.session_id, choice, agent)
    if target.recovery is not None or target.entry is None:
        raise RefusedError(
            f"{target.text!r} is a state, not a command: it cannot be undone",
            hint=f"bring that state back with `substrate recover restore {target.text}`",
        )
    if target.holder is not None:
        raise RefusedError(
            f"{target.entry.command_id} is no longer kept on its own: it is part of"
            f" {target.holder.command_id} ({target.holder.command})",
            hint=f"`substrate undo {target.holder.command_id}` takes the whole range back",
        )
    return undo_entry(store, target.entry, choice, agent)


def undo_entry(store: HistoryStore, entry: Entry, choice: Choice, agent: str | None) -> Outcome:
    _check_undoable(store, entry, choice)
    kind = "redo" if entry.kind in REVERSING_KINDS else "undo"
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        all_of_it = parts.whole(store, entry)
        for step in _steps(store, all_of_it):
            reversal.take_back(step)
        named = _named_paths(store, entry, choice.paths)
        undoing = [Undoing(seq, named) for seq in {entry.seq, *(e.seq for e in all_of_it)}]
        new = new_entry(store, kind, f"{kind} of {entry.command_id}", entry.session_id, agent)
        return perform(
            store, batch, reversal.wish(), new, undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
        )  # fmt: skip


def _undo_session(
    store: HistoryStore, session_id: str, choice: Choice, agent: str | None
) -> Outcome:
    entries = store.ledger.live(session_id=session_id, committed=True)
    if not entries:
        raise NotFoundError(
            f"session {session_id} changed nothing", hint="`substrate session list` shows all"
        )
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        oldest = entries[-1]
        line = store.ledger.live(after_pos=oldest.pos - 1, committed=True)
        for step in steps(store, line, {e.seq for e in entries}):
            reversal.take_back(step)
        new = new_entry(store, "undo", f"undo of session {session_id}", session_id, agent)
        undoing = [Undoing(e.seq) for e in entries]
        return perform(
            store, batch, reversal.wish(), new, undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
        )  # fmt: skip


def reversal_for(store: HistoryStore, batch: Batch, choice: Choice) -> Reversal:
    scratch = store.dir / "journal"
    merge = text_merger(
        lambda base, ours, theirs, favour: store.git.merge_file(
            base, ours, theirs, favor=favour, scratch=scratch
        )
    )
    blobs = Blobs(batch.read_blob, batch.add_blob, merge)
    return Reversal(batch, store.tip(), blobs, scope=choice.paths, take=choice.take)


def steps(store: HistoryStore, line: Sequence[Entry], chosen: set[int]) -> list[Step]:
    """The chosen entries as steps, newest first; neighbours on the line make one step.

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
    """Of one command: usually one; more where it was recorded in parts."""
    if len(entries) == 1:
        return [_step(store, entries[0])]
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
    if not parts.whole(store, entry):
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
            hint=f"settle it with `substrate undo {entry.command_id} --path P --take ours|theirs`,"
            " or bring the rest back with `substrate redo`",
        )
    if b"" in undone or _covered(choice.paths, undone):
        raise RefusedError(
            f"{entry.command_id} is already undone", hint="`substrate redo` brings it back"
        )


def _covered(paths: Sequence[RelPath], by: set[bytes]) -> bool:
    """Whether paths were named, and each of them lies within one of `by`."""
    return bool(paths) and all(any(is_within(p, RelPath(b)) for b in by) for p in paths)


def _skipped(store: HistoryStore, entry: Entry) -> set[bytes]:
    """What the undos of an entry left as it was because later work was in the way."""
    out: set[bytes] = set()
    for undo in store.ledger.reversed_by(entry.seq):
        paths = undo.detail.get(SKIPPED)
        out.update(bytes.fromhex(p) for p in (paths if isinstance(paths, list) else ()))
    return out


def _is_undone(store: HistoryStore, entry: Entry) -> bool:
    undone = store.ledger.reversed_paths(entry.seq)
    if not undone or b"" in undone:
        return bool(undone)
    changed = changed_paths(parts.changes_of_all(store, parts.whole(store, entry)))
    return all(any(is_within(path, RelPath(u)) for u in undone) for path in changed)


def _named_paths(
    store: HistoryStore, entry: Entry, paths: tuple[RelPath, ...]
) -> tuple[RelPath, ...]:
    """The asked-for paths, checked: each must be (or hold) something this command changed."""
    if not paths:
        return ()
    changed = [c.path for c in parts.changes_of_all(store, parts.whole(store, entry))]
    for path in paths:
        if not any(is_within(c, path) for c in changed):
            raise NotFoundError(
                f"{entry.command_id} did not change {display(path)}",
                hint=f"`substrate diff {entry.command_id} --stat` lists what it changed",
            )
    return paths
