"""Writing down what a command, or somebody outside, changed."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history import baseline, flush, sessions
from substrate.history.ledger import Detail, Entry, NewEntry
from substrate.history.line import Extension
from substrate.history.observe import Observation, count_files, edited, observe
from substrate.history.store import HistoryStore, is_alive
from substrate.model.nodes import ABSENT, Change
from substrate.model.paths import RelPath, ancestors, display
from substrate.objects import refs
from substrate.objects.batch import Batch
from substrate.system import clock, ids

RUNNING = "running"


class Running(NamedTuple):
    """A command between its start and its record; the ledger holds it as an intent."""

    command_id: str
    span_id: str
    session_id: str
    agent_id: str | None
    command: str
    base_commit: bytes
    intent_id: str
    #: Other commands that ran when this one started: their changes cannot be told apart.
    beside: tuple[str, ...] = ()


class Result(NamedTuple):
    """How a command ended, as far as history cares."""

    exit: int | None
    duration_ms: int | None
    detail: Detail


class Recorded(NamedTuple):
    entry: Entry
    changes: list[Change]
    #: Excluded paths that the command removed or replaced: their old content is not kept.
    excluded_gone: tuple[bytes, ...] = ()
    #: Paths that left history but not the disk: they are excluded now (grown over the size cap).
    still_there: frozenset[RelPath] = frozenset()


def ensure_baseline(store: HistoryStore) -> bool:
    """The first state of the workspace, before anything is recorded. Inside the lock.

    Whether it was taken only now, so that the line agrees with the workspace already.
    """
    if store.tip_commit is not None:
        return False
    if refs.list_refs(store.git_dir, "refs/"):
        raise DamagedStoreError(
            "the history index is empty although the history is not",
            hint="`substrate fsck --repair` rebuilds the index from the recorded commits",
        )
    baseline.take(store)
    return True


def record_outside(store: HistoryStore) -> Recorded | None:
    """Make the line agree with the workspace: edits nobody recorded become their own commit.

    Inside the lock. While a command runs without isolation its changes are still to come, so
    nothing is recorded for them here; they arrive with the command that ends first.
    """
    if ensure_baseline(store):
        return None
    new = NewEntry(ids.new_id("c"), "external", clock.now_ns(), "external-changes")
    beside = running_beside(store, None)
    if beside:
        new = new._replace(detail={"beside": list(beside)})
    with store.new_batch() as batch:
        seen = observe(store, batch)
        if not seen.changes:
            seen.save_cache(store, store.tip())
            return None
        entry = _extend(store, batch, seen, new)
    return Recorded(entry, seen.changes, tuple(seen.scan.excluded_gone))


def begin(
    store: HistoryStore, *, session: str | None, agent_id: str | None, command: str, exact: str
) -> Running:
    """Open a command: session chosen, outside edits recorded, an intent left in the ledger."""
    if not ensure_baseline(store) and not running_beside(store, None):
        record_outside(store)
    session_id = sessions.for_recording(store, session, agent_id)
    tip = store.tip_commit
    assert tip is not None
    beside = running_beside(store, None)
    command_id, span_id = ids.new_id("c"), ids.new_id("spn")
    intent = store.new_intent(
        RUNNING,
        {"command_id": command_id, "span_id": span_id, "session_id": session_id,
         "agent_id": agent_id, "command": command, "exact": exact},
    )  # fmt: skip
    with store.commit_point() as ledger:
        ledger.add_intent(intent)
        sessions.touch(ledger, session_id)
    return Running(
        command_id, span_id, session_id, agent_id, command, tip, intent.intent_id, beside
    )


def finish(store: HistoryStore, running: Running, result: Result) -> Recorded:
    """Close a command: what it changed becomes a commit; without a change there is none."""
    also = running_beside(store, running.intent_id)
    detail = dict(result.detail)
    if store.tip_commit is None and running.base_commit:
        detail["history_lost"] = True
    ensure_baseline(store)
    sessions.for_recording(store, running.session_id, running.agent_id)
    together = sorted({*running.beside, *also})
    if together:
        detail["beside"] = list(together)
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
    )  # fmt: skip
    with store.new_batch() as batch:
        seen = observe(store, batch)
        if seen.scan.excluded_gone:
            detail["excluded_gone"] = [display(path) for path in seen.scan.excluded_gone]
        seen = _admit(store, batch, seen)
        entry = _extend(store, batch, seen, new, drop_intent=running.intent_id)
    gone_from_history = {c.path for c in seen.changes if c.new == ABSENT}
    still_there = frozenset(gone_from_history & seen.scan.excluded.keys())
    return Recorded(entry, seen.changes, tuple(seen.scan.excluded_gone), still_there)


def running_beside(store: HistoryStore, own_intent: str | None) -> tuple[str, ...]:
    """Ids of the commands that are running right now in this workspace."""
    return tuple(
        str(intent.payload["command_id"])
        for intent in store.ledger.intents()
        if intent.kind == RUNNING and intent.intent_id != own_intent and is_alive(intent)
    )


def _admit(store: HistoryStore, batch: Batch, seen: Observation) -> Observation:
    """What was excluded until now is not the command's work: a commit of its own, before.

    Otherwise the undo of a command that changed ``.substrateignore`` would remove it. The cache
    is not saved here: it knows more than this commit does.
    """
    admitted = seen.scan.admitted
    if not admitted:
        return seen
    was_there = [
        change
        for change in seen.changes
        if change.old == ABSENT
        and (change.path in admitted or not admitted.isdisjoint(ancestors(change.path)))
    ]
    if was_there:
        new = NewEntry(
            ids.new_id("c"), "external", clock.now_ns(), "external-changes",
            changed_files=count_files(was_there), added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = Extension(store, batch, edited(batch, store.tip(), was_there), new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
    known = {change.path for change in was_there}
    return seen._replace(changes=[c for c in seen.changes if c.path not in known])


def _extend(
    store: HistoryStore,
    batch: Batch,
    seen: Observation,
    new: NewEntry,
    drop_intent: str | None = None,
) -> Entry:
    """Commit what was seen as `new`, or only note the entry when nothing changed."""
    snapshot = store.tip()
    extension = None
    if seen.changes:
        snapshot = edited(batch, snapshot, seen.changes)
        new = new._replace(changed_files=count_files(seen.changes), added_bytes=batch.added_bytes)
        extension = Extension(store, batch, snapshot, new)
    with store.commit_point(batch) as ledger:
        entry = ledger.add(new, extension.commit if extension else None)
        if extension:
            extension.take_up(ledger)
        if drop_intent:
            ledger.drop_intent(drop_intent)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
        if new.added_bytes:
            estimate = ledger.meta("size_estimate")
            known = estimate if isinstance(estimate, int) else 0
            ledger.set_meta("size_estimate", known + new.added_bytes)
    seen.save_cache(store, snapshot)
    flush.flush_if_due(store)
    return entry
