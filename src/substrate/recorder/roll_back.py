"""Undo, redo, rollback and restore: scan, plan, snapshot, apply, record."""

from __future__ import annotations

from collections.abc import Callable

from substrate.history import record, recovery, rollback, sessions, undo
from substrate.history.resolve import resolve
from substrate.history.restore import ChangedMeanwhileError, Outcome
from substrate.history.store import HistoryStore
from substrate.history.undo import Choice
from substrate.model.paths import RelPath
from substrate.recorder.place import Place
from substrate.recorder.user_git import how_to_put_back

_TRIES = 3


def undo_command(place: Place, target: str | None, choice: Choice) -> Outcome:
    """Take back what `target` names; without one, the session's newest command not yet undone."""

    def act(store: HistoryStore) -> Outcome:
        if target is None:
            session = sessions.for_question(store, place.session)
            entry = undo.newest_undoable(store, session.session_id)
            return undo.undo_entry(store, entry, choice, place.agent_id)
        found = resolve(store, target, place.session)
        return undo.undo_target(store, found, choice, place.agent_id)

    return _changing(place, "undo", act)


def redo_command(place: Place, choice: Choice) -> Outcome:
    """Take back the session's newest undo or rollback."""

    def act(store: HistoryStore) -> Outcome:
        session = sessions.for_question(store, place.session)
        entry = undo.newest_redoable(store, session.session_id)
        return undo.undo_entry(store, entry, choice, place.agent_id)

    return _changing(place, "redo", act)


def roll_back(
    place: Place,
    choice: Choice,
    *,
    to: str | None = None,
    checkpoint: str | None = None,
    session: str | None = None,
    exact: bool = False,
) -> Outcome:
    """Go back to a command, a checkpoint or a session's end; exactly one of them is named."""

    def act(store: HistoryStore) -> Outcome:
        if checkpoint is not None:
            point = rollback.to_checkpoint(store, checkpoint, session or place.session)
        elif to is not None:
            point = rollback.to_entry(store, to, session or place.session)
        else:
            assert session is not None
            point = rollback.to_session(store, session)
        return rollback.roll_back(store, point, choice, exact=exact, agent=place.agent_id)

    return _changing(place, "rollback", act)


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
                f" are; to put them back: {commands}"
            )
    return outcome._replace(notes=notes)


def _changing(place: Place, purpose: str, act: Callable[[HistoryStore], Outcome]) -> Outcome:
    """Scan first, so that what stands in the workspace is known; again if it moved meanwhile."""
    with place.existing_history() as store, store.writing(purpose):
        for attempt in range(_TRIES):
            record.record_outside(store)
            try:
                return _with_git_notes(store, act(store))
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")
