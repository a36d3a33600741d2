"""Compaction: squash what retention no longer keeps apart, pack what is left, drop the rest.

Each pass is one commit point. Before it, a new pack with everything that stays is made beside the
old objects; after it, the old objects go. A kill leaves the old store or the new one, and at worst
files that the next pass (or `settle`) removes.
"""

from __future__ import annotations

from typing import NamedTuple

from substrate.history import checkpoints, flush, metrics, sessions, unclaimed
from substrate.history.ledger import Entry, Intent, Ledger
from substrate.history.line import write_attrs_commit
from substrate.history.messages import ATTRS_REF, BRANCH
from substrate.history.retention import Decision, EntryView, Policy, SessionView, decide
from substrate.history.squash import NewLine, rewrite_line
from substrate.history.store import HistoryStore
from substrate.model.paths import display
from substrate.objects.batch import Batch
from substrate.system import clock, files
from substrate.workspace.trash import Trash

PRUNE = "prune"
_DAY_NS = 86_400 * 1_000_000_000
_MAX_PASSES = 5
_MANY_PACKS = 20
#: Pressure frees a little more than it must, so that the next command does not press again.
_PRESSURE_TARGET = 0.8


class Report(NamedTuple):
    decision: Decision
    size_before: int
    size_after: int
    commits_before: int
    commits_after: int
    expired_recoveries: tuple[str, ...]
    expired_trash: tuple[str, ...]
    #: Sentences, e.g. that the store stays over its cap and why.
    notes: tuple[str, ...]


def preview(store: HistoryStore, keep_checkpoints: int, keep_sessions: int) -> Decision:
    """What `compact` would decide, and why."""
    entries = list(reversed(store.ledger.live()))
    return _decide(store, entries, Policy(keep_checkpoints, keep_sessions))


def compact(store: HistoryStore, keep_checkpoints: int, keep_sessions: int) -> Report:
    """Inside the lock. Passes until the store is under its cap or nothing more can go."""
    store.ledger.fold_log()
    before = metrics.measure(store)
    policy = Policy(keep_checkpoints, keep_sessions)
    expired, trashed = expire(store)
    first = _one_pass(store, policy)
    size = metrics.git_bytes(store)
    notes: list[str] = []
    for _ in range(_MAX_PASSES):
        if size <= store.config.disk_cap_bytes:
            break
        wanted = size - int(store.config.disk_cap_bytes * _PRESSURE_TARGET)
        pressed = _one_pass(store, policy._replace(must_free_bytes=wanted))
        now = metrics.git_bytes(store)
        if pressed.ranges:
            notes.append(f"over the disk cap: {len(pressed.ranges)} more range(s) were squashed")
        if now >= size:
            break
        size = now
    if size > store.config.disk_cap_bytes:
        notes.append(
            "the store is still over its disk cap: outside edits and the newest state are never"
            " squashed; raise retention.disk_cap_mib or exclude large files in .substrateignore"
        )
    store.ledger.fold_log()  # else the log of this very work would count as growth
    after = metrics.measure(store)
    with store.ledger.transaction():
        store.ledger.set_meta("last_compaction_ns", clock.now_ns())
        store.ledger.set_meta("size_estimate", after.size_bytes)
    return Report(
        first, before.size_bytes, after.size_bytes, before.commits, after.commits,
        tuple(expired), tuple(trashed), tuple(notes),
    )  # fmt: skip


def compact_if_useful(
    store: HistoryStore, keep_checkpoints: int, keep_sessions: int
) -> Report | None:
    """At a session's end: only when something would be squashed or the store is untidy."""
    untidy = store.objects.pack_count() > _MANY_PACKS
    if untidy or is_due(store) or preview(store, keep_checkpoints, keep_sessions).ranges:
        return compact(store, keep_checkpoints, keep_sessions)
    return None


def is_due(store: HistoryStore) -> bool:
    """Whether the store has (by its running estimate) outgrown its cap."""
    estimate = store.ledger.meta("size_estimate")
    return isinstance(estimate, int) and estimate > store.config.disk_cap_bytes


def _one_pass(store: HistoryStore, policy: Policy) -> Decision:
    entries = list(reversed(store.ledger.live()))
    decision = _decide(store, entries, policy)
    with store.new_batch() as batch:
        committed = [e for e in entries if e.commit is not None]
        line = rewrite_line(store, batch, committed, decision) if decision.ranges else None
        attrs = _attrs_chain(store, batch, line) if line else None
        _pack_and_switch(store, batch, line, attrs)
    return decision


def _decide(store: HistoryStore, entries: list[Entry], policy: Policy) -> Decision:
    marks: dict[str, list[int]] = {}
    for one in checkpoints.of_session(store.ledger):
        marks.setdefault(one.session_id, []).append(one.after_pos)
    views = [
        SessionView(s.session_id, s.closed_ns is None, tuple(marks.get(s.session_id, ())))
        for s in sessions.all_sessions(store.ledger)
    ]
    lines = [
        EntryView(e.pos, e.command_id, e.session_id, e.kind, e.commit is not None, e.added_bytes)
        for e in entries
    ]
    return decide(lines, views, policy)


def _attrs_chain(store: HistoryStore, batch: Batch, line: NewLine) -> bytes | None:
    """One commit per run of equal attrs along the new line."""
    tip: bytes | None = None
    last = b""
    for snapshot, ts_ns in line.states:
        if snapshot.attrs and snapshot.attrs != last:
            tip = write_attrs_commit(batch, snapshot.attrs, tip, ts_ns)
        last = snapshot.attrs
    return tip


def _pack_and_switch(
    store: HistoryStore, batch: Batch, line: NewLine | None, attrs: bytes | None
) -> None:
    small = batch.small_objects()
    batch.publish()
    wanted = {name: oid for name, oid in store.ledger.refs().items() if oid is not None}
    if line is not None:
        wanted = {name: line.moved.get(oid, oid) for name, oid in wanted.items()}
        wanted.update(line.tags)
        wanted[BRANCH] = line.tip
        if attrs is not None:
            wanted[ATTRS_REF] = attrs
    reachable = {*wanted.values(), *_bases_in_use(store)}
    intent = store.new_intent(PRUNE, {"keep": [_packed(store, reachable)]})
    with store.commit_point() as ledger:
        ledger.keep_objects(small)  # until the prune below makes the pack the only copy
        if line is not None:
            line.take_up(ledger)
        for name, oid in wanted.items():
            if ledger.ref(name) != oid:
                ledger.set_ref(name, oid)
        ledger.add_intent(intent)
    finish_prune(store, intent)


def _bases_in_use(store: HistoryStore) -> set[bytes]:
    """What worlds started from that run or wait: needed to tell what their commands did."""
    out: set[bytes] = set()
    named = {bytes.fromhex(str(one.payload.get("base", ""))) for one in store.ledger.intents()}
    for base in named | unclaimed.bases(store):
        if base and store.objects.has(base):
            out.add(base)
            out.update(filter(None, [store.snapshot_of(base).attrs]))
    return out


def _packed(store: HistoryStore, commits: set[bytes]) -> str:
    """Everything these commits need as one more pack of the store; its name."""
    scratch = store.dir / "journal" / "compact"
    files.remove_tree(scratch)
    scratch.mkdir(mode=0o700, parents=True)
    try:
        pack = store.git.pack_reachable(sorted(commits), scratch)
        assert pack is not None, "a history has at least its baseline"
        return flush.adopt_pack(store, pack)
    finally:
        files.remove_tree(scratch)


def finish_prune(store: HistoryStore, intent: Intent) -> None:
    """Everything that stays is in the kept packs: the other objects can go."""
    keep = intent.payload["keep"]
    assert isinstance(keep, list)
    flush.remove_objects_except(store, {str(name) for name in keep})
    with store.commit_point() as ledger:
        ledger.forget_pending_objects()
        ledger.drop_intent(intent.intent_id)


def expire(store: HistoryStore) -> tuple[list[str], list[str]]:
    """Forget snapshots and trash that are older than the settings say. Inside the lock."""
    return _expire_recoveries(store), _expire_trash(store)


def _expire_recoveries(store: HistoryStore) -> list[str]:
    horizon = clock.now_ns() - store.config.retention_recovery_days * _DAY_NS
    rows = store.ledger.db.execute("SELECT ref FROM recoveries WHERE ts_ns < ?", (horizon,))
    old = [row["ref"] for row in rows]
    if old:
        with store.commit_point() as ledger:
            for ref in old:
                _forget_recovery(ledger, ref)
    return old


def _forget_recovery(ledger: Ledger, ref: str) -> None:
    ledger.db.execute("DELETE FROM recoveries WHERE ref = ?", (ref,))
    ledger.set_ref(ref, None)


def _expire_trash(store: HistoryStore) -> list[str]:
    config = store.config
    gone = Trash(store.trash_dir).expire(
        config.trash_max_age_days * 86_400, config.trash_max_mib << 20, clock.now_ns()
    )
    return [display(one.path) for one in gone]
