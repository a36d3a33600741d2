"""Undo, redo, rollback and restore: scan, plan, snapshot, apply, record."""

from __future__ import annotations

from collections.abc import Callable

from substrate.errors import ChangedMeanwhileError
from substrate.history import record, recovery, rollback, sessions, undo
from substrate.history.ledger import Entry
from substrate.history.resolve import resolve
from substrate.history.restore import Outcome
from substrate.history.store import HistoryStore
from substrate.history.undo import Choice
from substrate.model.paths import RelPath
from substrate.recorder.place import Place
from substrate.recorder.user_git import (
    effect_since,
    git_state,
    how_to_put_back,
    joined,
    put_back,
)
from substrate.workspace.plan import Plan

_TRIES = 3


def undo_command(
    place: Place, target: str | None, choice: Choice, *, with_git: bool = False
) -> Outcome:
    """Take back what `target` names; without one, the session's newest command not yet undone.

    `with_git` moves the user's refs and HEAD back, too, where they still stand as it left them.
    """

    moved_by: list[Entry] = []

    def act(store: HistoryStore) -> Outcome:
        if target is None:
            session = sessions.for_question(store, place.session)
            entry = undo.newest_undoable(store, session.session_id)
            moved_by[:] = [entry]
            return undo.undo_entry(store, entry, choice, place.agent_id)
        found = resolve(store, target, place.session)
        if found.session is not None:
            moved_by[:] = store.ledger.live(session_id=found.session.session_id)
        elif found.entry is not None:
            moved_by[:] = [found.entry]
            if with_git and found.entry.commit is None and found.entry.detail.get("git"):
                return _no_files(f"undo of {found.entry.command_id}")
        return undo.undo_target(store, found, choice, place.agent_id)

    return _changing(place, "undo", act, moved_by if with_git and not choice.dry_run else None)


def redo_command(place: Place, choice: Choice, *, with_git: bool = False) -> Outcome:
    """Take back the session's newest undo or rollback; `with_git` also what it moved back."""

    moved_by: list[Entry] = []

    def act(store: HistoryStore) -> Outcome:
        session = sessions.for_question(store, place.session)
        entry = undo.newest_redoable(store, session.session_id)
        moved_by[:] = [entry]
        return undo.undo_entry(store, entry, choice, place.agent_id)

    return _changing(place, "redo", act, moved_by if with_git and not choice.dry_run else None)


def roll_back(
    place: Place,
    choice: Choice,
    *,
    to: str | None = None,
    checkpoint: str | None = None,
    session: str | None = None,
    exact: bool = False,
    with_git: bool = False,
) -> Outcome:
    """Go back to a command, a checkpoint or a session's end; exactly one of them is named."""

    moved_by: list[Entry] = []

    def act(store: HistoryStore) -> Outcome:
        if checkpoint is not None:
            point = rollback.to_checkpoint(store, checkpoint, session or place.session)
        elif to is not None:
            point = rollback.to_entry(store, to, session or place.session)
        else:
            assert session is not None
            point = rollback.to_session(store, session)
        after = store.ledger.live(session_id=point.session_id, after_pos=point.pos)
        moved_by[:] = after
        return rollback.roll_back(store, point, choice, exact=exact, agent=place.agent_id)

    return _changing(place, "rollback", act, moved_by if with_git and not choice.dry_run else None)


def restore_recovery(
    place: Place, ref: str, paths: tuple[RelPath, ...], *, dry_run: bool
) -> Outcome:
    """Bring back what a recovery ref kept: the paths its operation replaced, or those named."""

    def act(store: HistoryStore) -> Outcome:
        return recovery_restore(store, ref, paths, place.agent_id, dry_run=dry_run)

    return _changing(place, "restore", act)


def recovery_restore(
    store: HistoryStore, ref: str, paths: tuple[RelPath, ...], agent: str | None, *, dry_run: bool
) -> Outcome:
    from substrate.history import from_trash
    from substrate.history.restore import perform

    kept = recovery.resolve(store, ref)
    choice = Choice(paths=paths, dry_run=dry_run)
    with store.new_batch() as batch:
        reversal = undo.reversal_for(store, batch, choice)
        # A directory among them means the directory: work done below it since is not touched.
        only = None if paths else frozenset(kept.paths)
        reversal.put_exactly(store.snapshot_of(kept.commit), only)
        new = undo.new_entry(store, "restore", f"restore of {kept.name}", None, agent)
        outcome = perform(store, batch, reversal.wish(), new, [], dry_run=dry_run)
    if dry_run:
        return outcome
    return from_trash.bring_back(store, kept.command_id, paths, new, outcome)


def _with_git_notes(store: HistoryStore, outcome: Outcome) -> Outcome:
    """Branches that an undone command moved stay where they are; say how to move them back."""
    notes = list(outcome.notes)
    for seq in outcome.undone:
        entry = store.ledger.by_seq(seq)
        lines = how_to_put_back(entry.detail.get("git")) if entry else []
        if entry and lines:
            commands = "; ".join(lines)
            notes.append(
                f"{entry.command_id} also moved refs of your git repository, which stay as they"
                f" are; to put them back: {commands} (--with-git would have done it)"
            )
    return outcome._replace(notes=notes)


def _no_files(what: str) -> Outcome:
    return Outcome(None, [], [], [], {}, None, [], Plan(()), what=what)


def _git_put_back(
    place: Place, store: HistoryStore, moved_by: list[Entry], outcome: Outcome
) -> Outcome:
    """The user's refs as they were before these commands, newest first. Where they moved is noted,
    for who takes that back."""
    if outcome.conflicts:
        said = "conflicts are left, so no ref of your git repository was moved"
    else:
        before = git_state(place.workspace)
        effect = joined(entry.detail.get("git") for entry in moved_by)
        said = put_back(place.workspace, effect, outcome.what) if effect else "no ref had moved"
        moved = effect_since(place.workspace, before)
        if moved and outcome.entry is not None:
            with store.commit_point() as ledger:
                outcome = outcome._replace(entry=ledger.add_detail(outcome.entry, git=moved))
    return outcome._replace(notes=[*outcome.notes, said])


def _changing(
    place: Place,
    purpose: str,
    act: Callable[[HistoryStore], Outcome],
    moved_by: list[Entry] | None = None,
) -> Outcome:
    """Scan first, so that what stands in the workspace is known; again if it moved meanwhile."""
    with place.existing_history() as store, store.writing(purpose):
        for attempt in range(_TRIES):
            record.record_outside(store)
            try:
                outcome = act(store)
                if moved_by is not None:
                    return _git_put_back(place, store, moved_by, outcome)
                return _with_git_notes(store, outcome)
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")
