"""Compaction: squash what retention no longer keeps apart, pack what is left, drop the rest.

Each pass is one commit point. Before it, a new pack with everything that stays is written beside
the old objects; after it, the old objects are removed. A kill leaves the old store or the new one,
and at worst files that the next pass (or `settle`) removes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from substrate.history.arrival import discarded_worlds, orphan_worlds
from substrate.history.maintenance import disk_cap, metrics
from substrate.history.maintenance.retention import Decision, EntryView, Policy, SessionView, decide
from substrate.history.maintenance.squash import NewLine, rewrite_line
from substrate.history.query import touched_paths
from substrate.history.record import checkpoints, sessions
from substrate.history.store import (
    ATTRS_REF,
    BRANCH,
    Entry,
    HistoryStore,
    Intent,
    Ledger,
    pack_small_objects,
    write_attrs_commit,
)
from substrate.model import display
from substrate.objects.store import Batch
from substrate.system.files import files
from substrate.system.sync import DAY_NS
from substrate.workspace.apply import Trash

PRUNE = "prune"
_MAX_PASSES = 5
_MANY_PACKS = 20
#: More than any store holds.
_EVERYTHING = 1 << 60
#: Free more than the cap demands, so that the next command does not have to compact again.
_PRESSURE_TARGET = 0.8


class Report(NamedTuple):
    """What a compaction did."""

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
    """Run passes until the store is under its cap or nothing more can go. Inside the lock."""
    store.ledger.fold_log()
    before = metrics.measure(store)
    touched_paths.catch_up(store)
    policy = Policy(keep_checkpoints, keep_sessions)
    expired, trashed = expire(store)
    first = _one_pass(store, policy)
    given_up = _press(store, policy) if metrics.capped_bytes(store) > _cap(store) else []
    store.ledger.fold_log()  # otherwise the log of this compaction would count as growth
    after = metrics.measure(store)
    disk_cap.note(store, given_up)
    return Report(
        first, before.size_bytes, after.size_bytes, before.commits, after.commits,
        tuple(expired), tuple(trashed), tuple(disk_cap.sentences(store, given_up)),
    )  # fmt: skip


def _press(store: HistoryStore, policy: Policy) -> list[Decision]:
    """Give up detail, oldest first, until the store is under its cap or only the floor is left."""
    store.ledger.shrink()
    given_up = []
    size = metrics.capped_bytes(store)
    for number in range(_MAX_PASSES + 2):
        if size <= _cap(store):
            break
        wanted = size - int(_cap(store) * _PRESSURE_TARGET)
        if number >= _MAX_PASSES:  # the estimates were too low: drop all that can go
            wanted = size + _cap(store) + _EVERYTHING
        is_last = number > _MAX_PASSES
        pressed = policy._replace(must_free_bytes=wanted, fold_baseline=is_last)
        entries = list(reversed(store.ledger.live()))
        if not any(one.grain == "pressure" for one in _decide(store, entries, pressed).ranges):
            continue
        given_up.append(_one_pass(store, pressed))
        store.ledger.shrink()
        size = metrics.capped_bytes(store)
    return given_up


def _cap(store: HistoryStore) -> int:
    return store.config.disk_cap_bytes


def compact_if_useful(
    store: HistoryStore, keep_checkpoints: int, keep_sessions: int
) -> Report | None:
    """At a session's end: only when something would be squashed or the store is untidy."""
    untidy = store.objects.pack_count() > _MANY_PACKS
    if untidy or disk_cap.is_due(store) or preview(store, keep_checkpoints, keep_sessions).ranges:
        return compact(store, keep_checkpoints, keep_sessions)
    return None


def _one_pass(store: HistoryStore, policy: Policy) -> Decision:
    entries = list(reversed(store.ledger.live()))
    decision = _decide(store, entries, policy)
    with store.new_batch() as batch:
        committed = [e for e in entries if e.commit is not None]
        line = rewrite_line(store, batch, committed, decision) if decision.ranges else None
        attrs = attrs_chain(batch, line) if line else None
        pack_and_switch(store, batch, line, attrs)
    return decision


def _decide(store: HistoryStore, entries: list[Entry], policy: Policy) -> Decision:
    marks: dict[str, list[int]] = {}
    for one in checkpoints.of_session(store.ledger):
        marks.setdefault(one.session_id, []).append(one.after_pos)
    views = [
        SessionView(s.session_id, s.closed_ns is None, tuple(marks.get(s.session_id, ())))
        for s in sessions.all_sessions(store.ledger)
    ]
    replaced = touched_paths.replaced_parts(store.ledger) if policy.must_free_bytes else {}
    lines = [
        EntryView(
            e.pos, e.command_id, e.session_id, e.kind, e.commit is not None,
            int(e.added_bytes * replaced.get(e.pos, 1.0)),
        )
        for e in entries
    ]  # fmt: skip
    return decide(lines, views, policy)


def attrs_chain(batch: Batch, line: NewLine) -> bytes | None:
    """One commit per run of equal attrs along the new line."""
    tip: bytes | None = None
    last = b""
    for snapshot, ts_ns in line.states:
        if snapshot.attrs and snapshot.attrs != last:
            tip = write_attrs_commit(batch, snapshot.attrs, tip, ts_ns)
        last = snapshot.attrs
    return tip


def pack_and_switch(
    store: HistoryStore,
    batch: Batch,
    line: NewLine | None,
    attrs: bytes | None,
    also: Callable[[Ledger], None] = lambda ledger: None,
) -> None:
    """Pack everything that stays, switch to it in one transaction (with `also`), drop the rest."""
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
        also(ledger)
        for name, oid in wanted.items():
            if ledger.ref(name) != oid:
                ledger.set_ref(name, oid)
        ledger.add_intent(intent)
    finish_prune(store, intent)


def _bases_in_use(store: HistoryStore) -> set[bytes]:
    """The bases of running and held worlds: needed to compute what their commands changed."""
    out: set[bytes] = set()
    named: set[bytes] = set()
    for one in store.ledger.intents():
        with suppress(ValueError):  # an intent that was set aside may be malformed
            named.add(bytes.fromhex(str(one.payload.get("base", ""))))
    for base in named | orphan_worlds.bases(store):
        if base and store.objects.has(base):
            out.add(base)
            out.update(filter(None, [store.snapshot_of(base).attrs]))
    return out


def _packed(store: HistoryStore, commits: set[bytes]) -> str:
    """Pack everything these commits need into a new pack of the store, and return its name."""
    scratch = store.dir / "journal" / "compact"
    files.remove_tree(scratch)
    scratch.mkdir(mode=0o700)
    try:
        pack = store.git.pack_reachable(sorted(commits), scratch)
        assert pack is not None, "a history has at least its baseline"
        return pack_small_objects.adopt_pack(store, pack)
    finally:
        files.remove_tree(scratch)


def finish_prune(store: HistoryStore, intent: Intent) -> None:
    """Remove all other objects: everything that stays is in the kept packs."""
    keep = intent.payload["keep"]
    assert isinstance(keep, list)
    store.refuse_if_moved("compact")
    pack_small_objects.remove_objects_except(store, {str(name) for name in keep})
    with store.commit_point() as ledger:
        ledger.forget_pending_objects()
        ledger.drop_intent(intent.intent_id)


def expire(store: HistoryStore) -> tuple[list[str], list[str]]:
    """Forget snapshots and trash that are older than the settings say. Inside the lock."""
    return _expire_recoveries(store), _expire_trash(store)


def _expire_recoveries(store: HistoryStore) -> list[str]:
    days, limit = store.own_days(), store.config.retention_recovery_days * DAY_NS
    rows = store.ledger.db.execute("SELECT ref, ts_ns FROM recoveries")
    old = [row["ref"] for row in rows if days.age_of(row["ts_ns"]) > limit]
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
        config.trash_max_age_days * 86_400, config.trash_max_mib << 20, store.own_days().age_of
    )
    return [*(display(one.path) for one in gone), *discarded_worlds.expire(store)]
