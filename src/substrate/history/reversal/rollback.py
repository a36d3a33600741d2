"""Rollback: take back the commands after a point, or put the whole tree as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import checkpoints, sessions
from substrate.history.checkpoints import Checkpoint
from substrate.history.ledger import SESSION_KINDS, Entry
from substrate.history.resolve import Target, present_commit, resolve
from substrate.history.restore import Outcome, Undoing, perform
from substrate.history.store import HistoryStore
from substrate.history.undo import Choice, new_entry, reversal_for, steps
from substrate.model.nodes import Change, Kind
from substrate.model.paths import RelPath
from substrate.objects import snapshot as snapshots
from substrate.objects.snapshot import Snapshot
from substrate.workspace.exclude import IGNORE_NAME, Exclusions


class Point(NamedTuple):
    """A place on the line to go back to."""

    name: str
    commit: bytes
    #: Entries with a higher `pos` come after it.
    pos: int
    #: Whose commands are taken back; None: everybody's.
    session_id: str | None


def to_entry(store: HistoryStore, text: str, session: str | None) -> Point:
    """The state right after a command (or at a tag or commit)."""
    target = resolve(store, text, session)
    if target.session is not None:
        return to_session(store, target.session.session_id)
    if target.recovery is not None:
        raise RefusedError(
            f"{text!r} is a recovery ref, not a point on the line",
            hint=f"bring it back with `substrate recover restore {text}`",
        )
    entry = target.present
    _check_not_swallowed(target)
    commit = entry.commit
    if commit is None:  # it changed nothing: the state after it is the state before it
        before = store.ledger.previous_commit(entry.pos)
        commit = before.commit if before else None
    if commit is None:
        raise NotFoundError(f"nothing was recorded before {text!r}", hint="see `substrate log`")
    whose = entry.session_id if entry.kind in SESSION_KINDS else None
    whose = whose or sessions.for_question(store, session).session_id
    return Point(entry.command_id, commit, entry.pos, whose)


def to_checkpoint(store: HistoryStore, text: str, session: str | None) -> Point:
    checkpoint = checkpoints.resolve(store, text, session)
    _check_still_a_boundary(store, checkpoint)
    commit = present_commit(store.ledger, checkpoint.commit)
    return Point(checkpoint.tag, commit, checkpoint.after_pos, checkpoint.session_id)


def to_session(store: HistoryStore, text: str) -> Point:
    """How things were at a session's end: all commands since are taken back, whoever ran them."""
    session = sessions.resolve(store.ledger, text)
    if session.closed_commit is None:
        raise RefusedError(
            f"session {session.session_id} is still open: it has no end to go back to",
            hint=f"close it first (`substrate session close {session.session_id}`), roll back to"
            f" a checkpoint of it, or take all of it back: `substrate undo {session.session_id}`",
        )
    commit = present_commit(store.ledger, session.closed_commit)
    entry = store.ledger.by_commit(commit)
    assert entry is not None, "a closed tag points at the line"
    if _goes_on_after(store, entry, session.closed_ns):
        raise RefusedError(
            f"the state at the end of session {session.session_id} is no longer kept: it is part"
            f" of {entry.command_id} ({entry.command})",
            hint=f"go back to the end of that range: `substrate rollback --to {entry.command_id}`",
        )
    return Point(f"the end of session {session.session_id}", commit, entry.pos, None)


def roll_back(
    store: HistoryStore, point: Point, choice: Choice, *, exact: bool, agent: str | None
) -> Outcome:
    """Inside the lock, with outside edits recorded."""
    line = store.ledger.live(after_pos=point.pos, committed=True)
    if exact:
        chosen = line
    else:
        chosen = [e for e in line if _is_whose(e, point.session_id)]
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        if exact:
            target = store.snapshot_of(point.commit)
            reversal.put_exactly(target, unseen_then=_unseen_in(store, target))
        else:
            for step in steps(store, line, {e.seq for e in chosen}):
                reversal.take_back(step)
        how = "exact rollback" if exact else "rollback"
        new = new_entry(store, "rollback", f"{how} to {point.name}", point.session_id, agent)
        undoing = [Undoing(e.seq, choice.paths) for e in chosen if e.kind != "external"]
        return perform(
            store, batch, reversal.wish(), new, undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
        )  # fmt: skip


def _unseen_in(store: HistoryStore, target: Snapshot) -> Callable[[Change], bool]:
    """Whether the rules of that time left a path out: that it is not there says nothing then."""
    file = snapshots.lookup(store.objects, target, RelPath(os.fsencode(IGNORE_NAME)))
    rules = store.objects.read_blob(file.oid) if file.kind is Kind.FILE else b""
    then = Exclusions(rules, size_cap_bytes=store.config.max_file_bytes)

    def was_unseen(change: Change) -> bool:
        is_dir = change.old.kind is Kind.DIRECTORY
        return then.reason(change.path, is_dir=is_dir, size=0) is not None

    return was_unseen


def _is_whose(entry: Entry, session_id: str | None) -> bool:
    if entry.kind not in SESSION_KINDS:
        return False
    return session_id is None or entry.session_id == session_id


def _check_still_a_boundary(store: HistoryStore, checkpoint: Checkpoint) -> None:
    """A squash that began before a checkpoint and ended after it has taken the place away."""
    for entry in store.ledger.live(
        session_id=checkpoint.session_id, after_pos=checkpoint.after_pos
    ):
        if entry.kind != "squash":
            continue
        if any(m.commit and m.pos <= checkpoint.after_pos for m in _swallowed(store, entry)):
            raise RefusedError(
                f"the state at {checkpoint.tag} is no longer kept: it is part of"
                f" {entry.command_id} ({entry.command})",
                hint=f"go back to the end of that range: `substrate rollback --to"
                f" {entry.command_id}`",
            )


def _goes_on_after(store: HistoryStore, squash: Entry, closed_ns: int | None) -> bool:
    """Under the disk cap sessions are squashed together: this end may lie in the middle."""
    if squash.kind != "squash" or closed_ns is None:
        return False
    return any(m.commit and m.ts_ns > closed_ns for m in _swallowed(store, squash))


def _swallowed(store: HistoryStore, squash: Entry) -> Iterator[Entry]:
    """Every command inside a squash, also of squashes inside it."""
    for member in store.ledger.members(squash.command_id):
        if member.kind == "squash":
            yield from _swallowed(store, member)
        else:
            yield member


def _check_not_swallowed(target: Target) -> None:
    if target.holder is not None and target.entry is not None:
        raise RefusedError(
            f"the state after {target.entry.command_id} is no longer kept: it is part of"
            f" {target.holder.command_id} ({target.holder.command})",
            hint=f"go back to the end of that range: `substrate rollback --to"
            f" {target.holder.command_id}`",
        )
