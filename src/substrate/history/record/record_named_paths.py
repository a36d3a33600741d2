"""Recording a command whose paths the caller knows: only these paths are compared."""

from __future__ import annotations

from collections.abc import Iterable

from substrate.history.arrival import compared
from substrate.history.record import sessions
from substrate.history.record.record_entry import Recorded, Result, Running, ensure_baseline
from substrate.history.record.scan_against_tip import count_files, edited
from substrate.history.store import Extension, HistoryStore, NewEntry, pack_small_objects
from substrate.model import RelPath
from substrate.system import clock


def finish(
    store: HistoryStore, running: Running, result: Result, paths: Iterable[RelPath]
) -> Recorded:
    """Close a command with what differs at or below `paths`. Inside the lock.

    Other differences are not attributed to it: the watcher or the next scan records them as
    external.
    """
    ensure_baseline(store)
    store.forget_exclusions()
    sessions.for_recording(store, running.session_id, running.agent_id)
    with store.new_batch() as batch:
        changes = compared(store, batch, batch, dict.fromkeys(paths, True))
        new = NewEntry(
            running.command_id, "command", clock.now_ns(), running.command,
            session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
            exit=result.exit, duration_ms=result.duration_ms, detail=dict(result.detail),
            changed_files=count_files(changes), added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = None
        if changes:
            extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
        with store.commit_point(batch) as ledger:
            entry = ledger.add(new, extension.commit if extension else None)
            if extension:
                extension.take_up(ledger)
            sessions.touch(ledger, running.session_id)
            ledger.grew_by(new.added_bytes)
    pack_small_objects.flush_if_due(store)
    return Recorded(entry, changes, last_commit=entry.commit)
