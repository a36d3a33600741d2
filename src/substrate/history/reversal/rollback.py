"""Rollback: take back the commands after a point, or restore the whole tree of that point."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history.query import Target, present_commit, resolve
from substrate.history.record import Checkpoint, Prompt, agent_sessions, checkpoints, sessions
from substrate.history.reversal.restore import Outcome, Undoing, perform
from substrate.history.reversal.restore_excluded import Later
from substrate.history.reversal.undo import (
    Choice,
    announcing,
    new_entry,
    reversal_for,
    reversible,
    steps,
    untouched,
)
from substrate.history.store import SESSION_KINDS, Entry, HistoryStore
from substrate.model import ABSENT, Change, Kind, RelPath, display
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.workspace import IGNORE_NAME, Exclusions


class Point(NamedTuple):
    """A place on the line to go back to."""

    name: str
    commit: bytes
    #: Entries with a higher `pos` come after it.
    pos: int
    #: The session whose commands are taken back; None: those of all sessions.
    session_id: str | None
    #: The option of `substrate rollback` that names it, with full ids.
    option: str


def to_entry(store: HistoryStore, text: str, session: str | None) -> Point:
    """The state right after a command (or at a tag or commit)."""
    target = resolve(store, text, session)
    if target.session is not None:
        return to_session(store, sessions.whole(store.ledger, text, "rollback --to").session_id)
    if target.prompt is not None:
        return _after_prompt(store, target.prompt)
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
    return Point(entry.command_id, commit, entry.pos, whose, f"--to {entry.command_id}")


def _after_prompt(store: HistoryStore, prompt: Prompt) -> Point:
    """The state right after the last command of a prompt."""
    found = store.ledger.of_prompt(prompt.prompt_id)
    if not found:
        raise NotFoundError(
            f"prompt {prompt.prompt_id} ran no recorded command",
            hint=f"`substrate rollback --to-prompt {prompt.prompt_id}` goes to when it was sent",
        )
    return to_entry(store, found[0].command_id, None)._replace(session_id=prompt.session_id)


def to_prompt(store: HistoryStore, prompt: Prompt) -> Point:
    """The state when a prompt was sent: what it led to is taken back, and what followed."""
    own = agent_sessions.with_children(store.ledger, prompt.session_id)
    since = [
        entry
        for one in own
        for entry in store.ledger.live(session_id=one)
        if entry.ts_ns >= prompt.started_ns
    ]
    since += [e for e in store.ledger.of_prompt(prompt.prompt_id) if e.squashed_into is None]
    if not since:
        raise NotFoundError(
            f"nothing was recorded after prompt {prompt.prompt_id} was sent",
            hint="`substrate log` shows what was recorded",
        )
    first = min(since, key=lambda entry: entry.pos)
    before = store.ledger.previous_commit(first.pos)
    if before is None or before.commit is None:
        raise NotFoundError(
            f"nothing was recorded before prompt {prompt.prompt_id}", hint="see `substrate log`"
        )
    name = f"before prompt {prompt.prompt_id}"
    option = f"--to-prompt {prompt.prompt_id}"
    return Point(name, before.commit, first.pos - 1, prompt.session_id, option)


def to_checkpoint(store: HistoryStore, text: str, session: str | None) -> Point:
    checkpoint = checkpoints.resolve(store, text, session)
    _check_still_a_boundary(store, checkpoint)
    commit = checkpoints.state(store, checkpoint)
    option = f"--checkpoint {checkpoint.session_id}/{checkpoint.seq}"
    return Point(checkpoint.tag, commit, checkpoint.after_pos, checkpoint.session_id, option)


def to_session(store: HistoryStore, text: str) -> Point:
    """The state at a session's end: all later commands are taken back, in every session."""
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
    name, option = f"the end of session {session.session_id}", f"--session {session.session_id}"
    return Point(name, commit, entry.pos, None, option)


def roll_back(
    store: HistoryStore, point: Point, choice: Choice, *, exact: bool, agent: str | None
) -> Outcome:
    """Go back to `point`. Inside the lock, with outside edits recorded."""
    after = store.ledger.live(after_pos=point.pos)
    line = [e for e in after if e.commit is not None]
    chosen = reversible(after)
    if not exact:
        _check_separable(store, point)
        whose = None
        if point.session_id is not None:
            whose = agent_sessions.with_children(store.ledger, point.session_id)
        chosen = [e for e in chosen if _is_whose(e, whose)]
    with store.new_batch() as batch:
        reversal = reversal_for(store, batch, choice)
        target = store.snapshot_of(point.commit)
        for path in untouched(store, chosen, choice.paths):
            _check_known(store, batch, target, path, point)
        if exact:
            reversal.put_exactly(target, unseen_then=_unseen_in(store, target))
        else:
            for step in steps(store, line, {e.seq for e in chosen}):
                reversal.take_back(step)
        how = "exact rollback" if exact else "rollback"
        new = new_entry(store, "rollback", f"{how} to {point.name}", point.session_id, agent)
        undoing = [Undoing(e.seq, choice.paths) for e in chosen if e.kind != "external"]
        return perform(
            store, batch, reversal.wish(), announcing(new, choice), undoing,
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
            later=Later.EXACT if exact else Later.of(choice.take),
        )  # fmt: skip


def _check_known(
    store: HistoryStore, batch: Batch, target: Snapshot, path: RelPath, point: Point
) -> None:
    """Refuse a path that is neither in the workspace nor in the state to go back to."""
    is_known = any(
        snapshots.lookup(batch, state, path) != ABSENT for state in (store.tip(), target)
    )
    if not is_known and not os.path.lexists(store.root / os.fsdecode(path)):
        raise NotFoundError(
            f"{display(path)} is neither in the workspace nor in {point.name}",
            hint=f"`substrate log --path {display(path)}` lists the commands that changed it",
        )


def _unseen_in(store: HistoryStore, target: Snapshot) -> Callable[[Change], bool]:
    """Whether the rules of that time excluded a path: then its absence from `target` is no proof
    that it did not exist."""
    file = snapshots.lookup(store.objects, target, RelPath(os.fsencode(IGNORE_NAME)))
    rules = store.objects.read_blob(file.oid) if file.kind is Kind.FILE else b""
    then = Exclusions(rules, size_cap_bytes=store.config.max_file_bytes)

    def was_unseen(change: Change) -> bool:
        is_dir = change.old.kind is Kind.DIRECTORY
        return then.reason(change.path, is_dir=is_dir, size=0) is not None

    return was_unseen


def _check_separable(store: HistoryStore, point: Point) -> None:
    """Refuse if a squash after the point mixes the commands to take back with other work."""
    shared = store.ledger.shared_squashes(point.session_id, point.pos)
    if shared:
        raise RefusedError(
            f"{shared[0].command_id} ({shared[0].command}) holds commands after {point.name}"
            " together with outside edits or other sessions' work",
            hint="add --exact to put the whole tree as it was; a snapshot is kept for `recover`",
        )


def _is_whose(entry: Entry, session_ids: Collection[str] | None) -> bool:
    if entry.kind not in SESSION_KINDS:
        return False
    return session_ids is None or entry.session_id in session_ids


def _check_still_a_boundary(store: HistoryStore, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint inside a squash: its state is no longer kept."""
    entry = squash_over(store, checkpoint)
    if entry is not None:
        raise RefusedError(
            f"the state at {checkpoint.tag} is no longer kept: it is part of"
            f" {entry.command_id} ({entry.command})",
            hint=f"go back to the end of that range: `substrate rollback --to {entry.command_id}`",
        )


def squash_over(store: HistoryStore, checkpoint: Checkpoint) -> Entry | None:
    """The squash that begins before a checkpoint and ends after it, if any."""
    after = store.ledger.live_after(checkpoint.after_pos, 1)
    if not after or after[0].kind != "squash":
        return None
    members = _swallowed(store, after[0])
    is_over = any(m.commit and m.pos <= checkpoint.after_pos for m in members)
    return after[0] if is_over else None


def _goes_on_after(store: HistoryStore, squash: Entry, closed_ns: int | None) -> bool:
    """Whether the squash includes work after the session's end: the disk cap joins sessions."""
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
