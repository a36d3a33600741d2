"""Forgetting: take content out of every recorded state, so that no id can bring it back.

The line of history is rewritten without that content, in the same way as compaction rewrites it:
old commit ids become aliases of the new ones, one ledger transaction switches to the new line, and
the old objects are removed. A kill leaves the old store or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from substrate.errors import LockedError, RefusedError
from substrate.history.maintenance.compact import attrs_chain, pack_and_switch
from substrate.history.maintenance.squash import NewLine
from substrate.history.query import touched_paths
from substrate.history.reversal import recovery_refs
from substrate.history.store import (
    Entry,
    HistoryStore,
    Ledger,
    messages,
    write_attrs_commit,
    write_commit,
)
from substrate.model import ABSENT, BlobWriter, ForgetRule, Kind, Node, RelPath, display
from substrate.objects.snapshots import Commit, Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch

Edits = dict[RelPath, Node]


class Survey(NamedTuple):
    """The parts of history that match a rule."""

    #: Commit of the line → what changes in its state.
    line: dict[bytes, Edits]
    #: Commit of a recovery ref → what changes in its state.
    recoveries: dict[bytes, Edits]
    #: Command id → the paths whose content that entry added or removed.
    entries: dict[str, tuple[RelPath, ...]]
    #: Entries whose own text (command, details) contains the secret.
    texts: tuple[str, ...]
    #: Paths of the present tree that still have the content.
    present: tuple[RelPath, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.line or self.recoveries or self.texts)


def survey(store: HistoryStore, rule: ForgetRule, blobs: BlobWriter) -> Survey:
    """Read all of history; contents with the secret removed are written to `blobs`."""
    finder: _Finder = _PathFinder(store, rule) if rule.path else _SecretFinder(store, rule, blobs)
    line: dict[bytes, Edits] = {}
    entries: dict[str, tuple[RelPath, ...]] = {}
    before: Snapshot | None = None
    edits: Edits = {}
    for entry in _committed(store):
        assert entry.commit is not None
        after = store.snapshot_of(entry.commit)
        edits, own = finder.step(before, after)
        if edits:
            line[entry.commit] = edits
        if own:
            entries[entry.command_id] = own
        before = after
    recoveries = {}
    if before is not None:
        for one in recovery_refs.all_recoveries(store.ledger):
            found, _ = finder.beside(before, store.snapshot_of(one.commit))
            if found:
                recoveries[one.commit] = found
    return Survey(line, recoveries, entries, _texts(store.ledger, rule), tuple(edits))


def forget(store: HistoryStore, rule: ForgetRule) -> Survey:
    """Forget what matches the rule. Inside the lock.

    Refused while a command runs or a world is held: the world may contain the content.
    """
    refuse_unfinished(store)
    store.ledger.db.execute("PRAGMA secure_delete=ON")
    with store.new_batch() as batch:
        found = survey(store, rule, batch)
        if not found.is_empty:
            line = _rewritten(store, batch, rule, found)
            moved = _rewritten_recoveries(store, batch, rule, found)
            line.moved.update(moved)
            attrs = attrs_chain(batch, line)
            pack_and_switch(
                store, batch, line, attrs, lambda ledger: _take_up(ledger, rule, found, moved)
            )
    if rule.secret:
        with store.commit_point() as ledger:
            _scrub_reports(ledger, rule)
    _shred(store)
    return found


def refuse_unfinished(store: HistoryStore) -> None:
    waiting = [str(one.payload.get("world_id") or one.intent_id) for one in store.ledger.intents()]
    if waiting:
        raise RefusedError(
            "nothing was removed: a command is running, or a world is kept, and may hold the"
            f" content too: {', '.join(waiting[:8])}",
            hint=f"wait for the command, or decide: `substrate world apply {waiting[0]}` or"
            f" `substrate world discard {waiting[0]}` (a discarded one: discard it again)",
        )


# ------------------------------------------------------------------------------ finding


class _Finder(Protocol):
    def step(
        self, before: Snapshot | None, after: Snapshot
    ) -> tuple[Edits, tuple[RelPath, ...]]: ...

    def beside(self, tip: Snapshot, other: Snapshot) -> tuple[Edits, tuple[RelPath, ...]]: ...


class _PathFinder:
    """One path, with everything below it."""

    def __init__(self, store: HistoryStore, rule: ForgetRule) -> None:
        assert rule.path is not None
        self._objects, self._path = store.objects, rule.path

    def step(self, before: Snapshot | None, after: Snapshot) -> tuple[Edits, tuple[RelPath, ...]]:
        node = snapshots.lookup(self._objects, after, self._path)
        edits = {} if node.kind is Kind.ABSENT else {self._path: ABSENT}
        if before is None:
            return edits, tuple(edits)
        changes = snapshots.diff(self._objects, before, after, self._path)
        return edits, tuple(change.path for change in changes)

    def beside(self, tip: Snapshot, other: Snapshot) -> tuple[Edits, tuple[RelPath, ...]]:
        return self.step(tip, other)


class _SecretFinder:
    """Every path whose content or extended attributes hold the secret. Each blob is read once."""

    def __init__(self, store: HistoryStore, rule: ForgetRule, blobs: BlobWriter) -> None:
        self._objects, self._rule, self._blobs = store.objects, rule, blobs
        self._marked: Edits = {}
        #: Blob id → the id of the scrubbed content; the same id where the secret is not in it.
        self._known: dict[bytes, bytes] = {}

    def step(self, before: Snapshot | None, after: Snapshot) -> tuple[Edits, tuple[RelPath, ...]]:
        self._marked, own = self._stepped(self._marked, before, after)
        return dict(self._marked), own

    def beside(self, tip: Snapshot, other: Snapshot) -> tuple[Edits, tuple[RelPath, ...]]:
        return self._stepped(self._marked, tip, other)

    def _stepped(
        self, marked: Edits, before: Snapshot | None, after: Snapshot
    ) -> tuple[Edits, tuple[RelPath, ...]]:
        out, own = dict(marked), []
        for change in snapshots.diff(self._objects, before or snapshots.EMPTY, after):
            had = out.pop(change.path, None) is not None
            clean = self._clean_node(change.new)
            if clean != change.new:
                out[change.path] = clean
                had = True
            if had:
                own.append(change.path)
        return out, tuple(own)

    def _clean_node(self, node: Node) -> Node:
        oid = self._clean(node.oid) if node.has_content else node.oid
        return node._replace(oid=oid, xattrs=self._rule.scrubbed_pairs(node.xattrs))

    def _clean(self, oid: bytes) -> bytes:
        if oid not in self._known:
            data = self._objects.read_blob(oid)
            has = self._rule.needle in data
            self._known[oid] = self._blobs.add_blob(self._rule.scrubbed(data)) if has else oid
        return self._known[oid]


def _committed(store: HistoryStore) -> list[Entry]:
    """The line, oldest first."""
    return list(reversed(store.ledger.live(committed=True)))


def _texts(ledger: Ledger, rule: ForgetRule) -> tuple[str, ...]:
    if not rule.secret:
        return ()
    rows = ledger.db.execute("SELECT command_id, command, detail FROM entries ORDER BY seq")
    return tuple(
        row["command_id"]
        for row in rows
        if rule.is_in_text(row["command"]) or rule.is_in_json(row["detail"].encode())
    )


# ------------------------------------------------------------------------------ rewriting


def _rewritten(store: HistoryStore, batch: Batch, rule: ForgetRule, found: Survey) -> NewLine:
    out = NewLine(b"", {}, [], {}, [])
    texts = set(found.texts)
    parent: bytes | None = None
    for entry in _committed(store):
        assert entry.commit is not None
        snapshot = store.snapshot_of(entry.commit)
        stored = store.objects.read_commit(entry.commit)
        edits = found.line.get(entry.commit)
        if edits:
            snapshot = snapshots.edit(batch, snapshot, edits)
        stays = stored.parents == ((parent,) if parent else ())
        if edits or not stays or entry.command_id in texts:
            subject = _subject(stored, rule)
            commit = write_commit(batch, snapshot, parent, entry, subject)
            out.moved[entry.commit] = commit
            parent = commit
        else:
            parent = entry.commit
        out.states.append((snapshot, entry.ts_ns))
    assert parent is not None
    return out._replace(tip=parent)


def _rewritten_recoveries(
    store: HistoryStore, batch: Batch, rule: ForgetRule, found: Survey
) -> dict[bytes, bytes]:
    moved: dict[bytes, bytes] = {}
    for one in recovery_refs.all_recoveries(store.ledger):
        stored = store.objects.read_commit(one.commit)
        subject = _subject(stored, rule)
        edits = found.recoveries.get(one.commit)
        if not edits and subject.encode("utf-8", "surrogateescape") in stored.message:
            continue
        snapshot = snapshots.edit(batch, store.snapshot_of(one.commit), edits or {})
        trailers = messages.parse_trailers(stored.message)
        assert trailers is not None, "every recovery commit has trailers"
        message = messages.compose(subject, trailers._replace(attrs=snapshot.attrs.hex()))
        attrs = (
            write_attrs_commit(batch, snapshot.attrs, None, one.ts_ns) if snapshot.attrs else b""
        )
        moved[one.commit] = batch.add_commit(
            Commit(
                snapshot.tree, (attrs,) if attrs else (), stored.author, stored.committer, message
            )
        )
    return moved


def _subject(stored: Commit, rule: ForgetRule) -> str:
    return rule.scrubbed_text(stored.message.split(b"\n", 1)[0].decode("utf-8", "surrogateescape"))


def _take_up(
    ledger: Ledger, rule: ForgetRule, found: Survey, recoveries: dict[bytes, bytes]
) -> None:
    """Inside the transaction: update the texts of entries and checkpoints, and recovery refs."""
    touched_paths.reset(ledger)  # the blobs have other ids now, and the index names paths
    changed = {path for edits in found.line.values() for path in edits}
    if rule.path is not None or b"\n" in rule.needle:  # otherwise no line was added or removed
        _forget_authors(ledger, changed | {p for paths in found.entries.values() for p in paths})
    ledger.db.executemany(
        "UPDATE recoveries SET commit_oid = ? WHERE commit_oid = ?",
        [(new, old) for old, new in recoveries.items()],
    )
    for command_id in {*found.texts, *found.entries}:
        row = ledger.db.execute(
            "SELECT command, detail FROM entries WHERE command_id = ?", (command_id,)
        ).fetchone()
        detail = rule.scrubbed_json(json.loads(row["detail"]))
        assert isinstance(detail, dict)
        marks = {*detail.get("forgotten", ()), *map(display, found.entries.get(command_id, ()))}
        if command_id in found.texts:
            marks.add("(command text)")
        detail["forgotten"] = sorted(marks)
        ledger.db.execute(
            "UPDATE entries SET command = ?, detail = ? WHERE command_id = ?",
            (rule.scrubbed_text(row["command"]), json.dumps(detail, sort_keys=True), command_id),
        )
    if rule.secret:
        for row in ledger.db.execute("SELECT session_id, seq, message FROM checkpoints").fetchall():
            ledger.db.execute(
                "UPDATE checkpoints SET message = ? WHERE session_id = ? AND seq = ?",
                (rule.scrubbed_text(row["message"]), row["session_id"], row["seq"]),
            )


#: What coding agents reported, as texts: by table its columns.
_REPORTED = {
    "prompts": ("text", "model", "agent_prompt"),
    "agent_sessions": ("agent", "agent_session", "model"),
    "tool_calls": ("call_id", "tool", "paths"),
}


def _scrub_reports(ledger: Ledger, rule: ForgetRule) -> None:
    for table, columns in _REPORTED.items():
        for column in columns:
            rows = ledger.db.execute(
                f"SELECT DISTINCT {column} AS said FROM {table} WHERE {column} IS NOT NULL"
            ).fetchall()
            for (said,) in rows:
                if rule.is_in_text(said):
                    ledger.db.execute(
                        f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {column} = ?",
                        (rule.scrubbed_text(said), said),
                    )


def _forget_authors(ledger: Ledger, paths: Iterable[RelPath]) -> None:
    """Drop the line authors of these files: their lines differ from what squashes recorded."""
    ledger.db.executemany("DELETE FROM line_authors WHERE path = ?", [(p,) for p in paths])


def _shred(store: HistoryStore) -> None:
    """Free pages of the database may still hold old rows: rewrite the file without them."""
    store.ledger.fold_log()
    try:
        store.ledger.db.execute("VACUUM")
    except LockedError:
        raise RefusedError(
            "another process reads the history: its file could not be cleaned",
            hint="run the same `substrate forget` again when it has ended",
        ) from None
    store.ledger.fold_log()
