"""Checkpoints, sessions and compaction."""

from __future__ import annotations

from substrate.history.maintenance import Decision, Report, compact, disk_cap
from substrate.history.record import Checkpoint, Session, checkpoints, record_entry, sessions
from substrate.recorder.command import outside_edits
from substrate.recorder.session_context import Place


def mark_checkpoint(place: Place, message: str = "", seq: int | None = None) -> Checkpoint:
    """Mark the present state; before any command, that is the baseline."""
    with place.history() as store, store.writing("checkpoint"):
        base_known = outside_edits.agree(place, store)
        latest = sessions.latest(store.ledger)
        if place.session is None and latest is not None and latest.closed_ns is None:
            session_id = latest.session_id
        else:
            session_id = sessions.for_recording(store, place.session, place.agent_id)
        marked = checkpoints.mark(store, session_id, message, seq)
        agent_id = sessions.resolve(store.ledger, session_id).agent_id
        return marked._replace(base_known=base_known, agent_id=agent_id)


def start_session(place: Place, named: str | None) -> Session:
    with place.history() as store, store.writing("start a session"):
        record_entry.record_outside(store)
        return sessions.start(store, named, place.agent_id)


def close_session(place: Place, named: str | None) -> tuple[Session, Report | None]:
    """End a session, then compact unless the configuration disables it."""
    with place.existing_history() as store, store.writing("close a session"):
        record_entry.record_outside(store)
        session = sessions.for_question(store, named or place.session)
        closed = sessions.close(store, session.session_id)
        report = None
        if store.config.compact_auto:
            config = store.config
            report = compact.compact_if_useful(
                store, config.retention_checkpoints, config.retention_sessions
            )
        return closed, report


def keep_under_cap(place: Place) -> list[str]:
    """Compact if the store has outgrown its cap. Returns sentences for the user."""
    with place.existing_history() as store:
        if not (store.config.compact_auto and disk_cap.is_due(store)):
            return []
        with store.writing("compact"):
            config = store.config
            report = compact.compact(store, config.retention_checkpoints, config.retention_sessions)
    return list(report.notes)


def compact_history(
    place: Place, keep_checkpoints: int | None, keep_sessions: int | None
) -> Report:
    with place.existing_history() as store, store.writing("compact"):
        config = store.config
        return compact.compact(
            store,
            config.retention_checkpoints if keep_checkpoints is None else keep_checkpoints,
            config.retention_sessions if keep_sessions is None else keep_sessions,
        )


def preview_compaction(
    place: Place, keep_checkpoints: int | None, keep_sessions: int | None
) -> Decision:
    with place.existing_history() as store:
        config = store.config
        return compact.preview(
            store,
            config.retention_checkpoints if keep_checkpoints is None else keep_checkpoints,
            config.retention_sessions if keep_sessions is None else keep_sessions,
        )
