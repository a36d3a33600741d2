"""Shell commands that a coding agent runs without a world: what changed between its two hooks.

A file that others wrote in that time (`concurrent_writes`) is *uncertain*: it is recorded as
external, and an undo of the command leaves it alone.
"""

from __future__ import annotations

from substrate.coding_agents import HookEvent
from substrate.history.arrival import compared, record_met, written_by
from substrate.history.record import (
    Recorded,
    ToolCall,
    agent_edits,
    count_files,
    edited,
    observe,
    record_entry,
    sessions,
    tool_calls,
)
from substrate.history.store import Detail, Extension, HistoryStore, NewEntry
from substrate.model import Change, RelPath, display
from substrate.objects.store import Batch
from substrate.recorder.agent_events import edit_events, hook_time, observed_span
from substrate.recorder.agent_events.acting_session import Acting
from substrate.recorder.agent_events.concurrent_writes import written_by_others
from substrate.recorder.command import outside_edits
from substrate.recorder.session_context import Place
from substrate.system import clock, ids
from substrate.trace.redact import redact


def before_shell(place: Place, store: HistoryStore, event: HookEvent, who: Acting) -> None:
    """Record outside edits, so that what differs afterwards happened since; expect changes.

    Another open call may have made some of them. They are recorded all the same: this call may be
    about to remove them, and kept bytes matter more than whose they are.
    """
    began_ns = hook_time.began_ns(place.environment)
    record_entry.refuse_outside(store)
    known = edit_events.files_before(place, event)
    agent_edits.record_outside_of(store, (), began_ns, known, is_shell=True)
    with store.new_batch() as batch:
        found = _changes(place, store, batch, began_ns)
        # Of the files that the client read, the state at that time is recorded already.
        changes = [c for c in found if c.path not in known]
        if changes:
            record_met(store, batch, changes)
    with store.commit_point(durable=False) as ledger:
        call_id = event.call_id or event.report_id or ids.new_id("c")
        tool_calls.announce(
            ledger, who.session_id, call_id, event.tool, known, started_ns=began_ns, is_shell=True
        )


def after_shell(place: Place, store: HistoryStore, event: HookEvent, who: Acting) -> None:
    with store.commit_point(durable=False) as ledger:
        call = tool_calls.take(ledger, who.session_id, event.call_id, event.tool)
    if call is None or _ran_in_world(store, who.session_id, call):
        return
    with store.new_batch() as batch:
        changes = _changes(place, store, batch, also=call.paths)
        ended_ns = hook_time.began_ns(place.environment)
        doubtful = written_by_others(store, call, event.command, ended_ns, changes)
        own = [change for change in changes if change.path not in doubtful]
        new = _entry(store, event, who, call, doubtful)
        recorded = _recorded(store, batch, new, own)
        if doubtful:
            about: Detail = {"uncertain": True, "perhaps_of": recorded.entry.command_id}
            record_met(store, batch, [c for c in changes if c.path in doubtful], about)
    observed_span.write(place, event, recorded)


def _ran_in_world(store: HistoryStore, session_id: str, call: ToolCall) -> bool:
    """Whether the command went through `substrate -c`, which has recorded it already."""
    newest = store.ledger.live(session_id=session_id, after_pos=call.after_seq)
    return any(
        entry.kind == "command" and "isolation" in entry.detail and _is_same(entry.detail, call)
        for entry in newest
    )


def _is_same(detail: Detail, call: ToolCall) -> bool:
    tool = detail.get("tool")
    return not isinstance(tool, dict) or tool.get("call_id") in (None, "", call.call_id)


def _changes(
    place: Place,
    store: HistoryStore,
    batch: Batch,
    until_ns: int | None = None,
    also: tuple[RelPath, ...] = (),
) -> list[Change]:
    """What differs from history now: from the watcher if it saw everything, else by a scan.

    `until_ns`: only what was written until then. `also`: files whose recorded state may be older
    than all that the watcher has seen.
    """
    question = outside_edits.ask(place, outside_edits.INSTEAD_OF_SCAN_S)
    if question is not None:
        answer = question.answer()
        try:
            if not answer.why_not:
                suspects = {RelPath(path): deep for path, deep in answer.suspects.items()}
                suspects.update(dict.fromkeys(also, True))
                found = compared(store, batch, batch, suspects) if suspects else []
                wanted = _until(store, found, until_ns)
                if len(wanted) == len(found):
                    answer.done()
                return wanted
        finally:
            answer.close()
    return _until(store, observe(store, batch).changes, until_ns)


def _until(store: HistoryStore, changes: list[Change], until_ns: int | None) -> list[Change]:
    return changes if until_ns is None or not changes else written_by(store, changes, until_ns)


def _entry(
    store: HistoryStore, event: HookEvent, who: Acting, call: ToolCall, doubtful: set[RelPath]
) -> NewEntry:
    detail = who.detail(event, event.call_id)
    detail["exact"] = event.command
    if doubtful:
        detail["uncertain"] = [display(path) for path in sorted(doubtful)]
    text = redact(event.command) or event.tool
    now_ns = clock.now_ns()
    return NewEntry(
        ids.new_id("c"), "command", now_ns, text, session_id=who.session_id, agent_id=event.agent,
        span_id=ids.new_id("spn"), duration_ms=(now_ns - call.started_ns) // 1_000_000,
        detail=store.kept_detail(detail, text),
    )  # fmt: skip


def _recorded(store: HistoryStore, batch: Batch, new: NewEntry, changes: list[Change]) -> Recorded:
    new = new._replace(changed_files=count_files(changes), added_bytes=batch.added_bytes)
    extension = None
    if changes:
        extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
    with store.commit_point(batch) as ledger:
        entry = ledger.add(new, extension.commit if extension else None)
        if extension:
            extension.take_up(ledger)
        sessions.touch(ledger, str(new.session_id))
        ledger.grew_by(new.added_bytes)
    return Recorded(entry, changes, last_commit=entry.commit)
