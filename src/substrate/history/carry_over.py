"""Carrying what can still be read from a damaged store into a new one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history import messages
from substrate.history.ledger import Entry, Ledger, NewEntry
from substrate.history.line import write_attrs_commit, write_commit
from substrate.history.messages import ATTRS_REF, BRANCH, Trailers, parse_trailers
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT
from substrate.objects import refs
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.commits import Commit
from substrate.objects.snapshot import Snapshot
from substrate.objects.store import ObjectStore


class CarriedOver(NamedTuple):
    kept: list[str]
    lost: list[str]


class _Old(NamedTuple):
    """One commit of the damaged line with what is known of it, oldest first in lists."""

    commit: bytes
    stored: Commit
    trailers: Trailers
    entry: Entry | None


def carry_over(store: HistoryStore, quarantine: Path) -> CarriedOver:
    """Rebuild the line in the (empty) new store; the baseline comes from its first whole state."""
    objects = ObjectStore(quarantine / ".git")
    ledger = _old_ledger(quarantine)
    line = _old_line(quarantine, objects, ledger)
    kept: list[str] = []
    parent: bytes | None = None
    attrs_tip: bytes | None = None
    moved: dict[bytes, bytes] = {}
    for old in line:
        with Batch(store.objects) as batch:
            snapshot = _copy_state(objects, batch, old)
            if snapshot is None:
                continue
            new = _new_entry(old)
            commit = write_commit(batch, snapshot, parent, new, _subject(old))
            if snapshot.attrs:
                attrs_tip = write_attrs_commit(batch, snapshot.attrs, attrs_tip, new.ts_ns)
            with store.commit_point(batch) as new_ledger:
                new_ledger.add(new, commit)
                new_ledger.set_ref(BRANCH, commit)
                if attrs_tip:
                    new_ledger.set_ref(ATTRS_REF, attrs_tip)
            parent = commit
            moved[old.commit] = commit
            kept.append(new.command_id)
    lost = _note_lost(store, ledger, set(kept))
    _carry_marks(store, ledger, moved)
    if ledger is not None:
        ledger.close()
    return CarriedOver(kept, lost)


def _old_ledger(quarantine: Path) -> Ledger | None:
    try:
        ledger = Ledger(quarantine / "index" / "history.db")
        ledger.db.execute("SELECT count(*) FROM entries").fetchone()
        return ledger
    except (SubstrateError, sqlite3.Error, OSError):
        return None


def _old_line(quarantine: Path, objects: ObjectStore, ledger: Ledger | None) -> list[_Old]:
    """By the ledger if it can be read; otherwise from every commit object that says what it is."""
    found: list[_Old] = []
    if ledger is not None:
        try:
            entries = list(reversed(ledger.live(committed=True)))
        except (SubstrateError, sqlite3.Error):
            entries = []
        for entry in entries:
            assert entry.commit is not None
            old = _read(objects, entry.commit, entry)
            if old is not None:
                found.append(old)
    return found or _line_from_git(quarantine, objects)


def _line_from_git(quarantine: Path, objects: ObjectStore) -> list[_Old]:
    try:
        tip = refs.read_ref(quarantine / ".git", BRANCH)
    except DamagedStoreError:
        tip = None
    candidates = [tip] if tip else []
    candidates += _newest_commits(objects)
    best: list[_Old] = []
    for start in candidates:
        line = _follow(objects, start)
        if len(line) > len(best):
            best = line
        if tip and best:
            break
    return best


def _follow(objects: ObjectStore, commit: bytes | None) -> list[_Old]:
    line: list[_Old] = []
    while commit:
        old = _read(objects, commit, None)
        if old is None:
            break
        line.append(old)
        commit = old.stored.parents[0] if old.stored.parents else None
    return line[::-1]


def _newest_commits(objects: ObjectStore) -> list[bytes]:
    """Commits that no other history commit has for a parent."""
    commits: dict[bytes, Commit] = {}
    for oid in objects.all_oids():
        try:
            kind, _ = objects.read(oid)
            if kind == "commit":
                commits[oid] = objects.read_commit(oid)
        except DamagedStoreError:
            continue
    parents = {parent for commit in commits.values() for parent in commit.parents}
    return [
        oid for oid, commit in commits.items()
        if oid not in parents and parse_trailers(commit.message) is not None
        and not commit.message.startswith(b"recovery:")
    ]  # fmt: skip


def _read(objects: ObjectStore, commit: bytes, entry: Entry | None) -> _Old | None:
    try:
        stored = objects.read_commit(commit)
    except DamagedStoreError:
        return None
    trailers = parse_trailers(stored.message)
    return _Old(commit, stored, trailers, entry) if trailers else None


def _copy_state(objects: ObjectStore, batch: Batch, old: _Old) -> Snapshot | None:
    """The whole state, re-made in the new store; None if any part of it cannot be read."""
    attrs = bytes.fromhex(old.trailers.attrs) if old.trailers.attrs else b""
    state = Snapshot(old.stored.tree, attrs)
    try:
        nodes = []
        for path, node in snapshots.walk(objects, state):
            if node.has_content and not batch.has(node.oid):
                batch.add_blob(objects.read_blob(node.oid))
            if node != ABSENT:
                nodes.append((path, node))
        return snapshots.build(batch, nodes)
    except DamagedStoreError:
        return None


def _subject(old: _Old) -> str:
    return old.stored.message.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")


def _new_entry(old: _Old) -> NewEntry:
    entry = old.entry
    if entry is not None:
        return NewEntry(
            entry.command_id, entry.kind, entry.ts_ns, entry.command, entry.session_id,
            entry.agent_id, entry.span_id, entry.duration_ms, entry.exit, entry.changed_files,
            entry.added_bytes, entry.detail,
        )  # fmt: skip
    named = old.trailers
    command = _subject(old).partition(f"{named.command_id} ")[2] or _subject(old)
    return NewEntry(
        named.command_id, named.kind, old.stored.time_s * 10**9, command, named.session_id,
        named.agent_id, named.span_id, exit=named.exit,
    )  # fmt: skip


def _note_lost(store: HistoryStore, old: Ledger | None, kept: set[str]) -> list[str]:
    """Entries whose state is gone still resolve: they say that it is lost."""
    if old is None:
        return []
    lost = []
    try:
        entries = list(reversed(old.live()))
    except (SubstrateError, sqlite3.Error):
        return []
    with store.commit_point() as ledger:
        for entry in entries:
            if entry.command_id in kept:
                continue
            detail = dict(entry.detail)
            if entry.commit is not None:
                detail["lost"] = True
                lost.append(entry.command_id)
            new = NewEntry(
                entry.command_id, entry.kind, entry.ts_ns, entry.command, entry.session_id,
                entry.agent_id, entry.span_id, entry.duration_ms, entry.exit,
                entry.changed_files, 0, detail,
            )  # fmt: skip
            ledger.add(new, None)
    return lost


def _carry_marks(store: HistoryStore, old: Ledger | None, moved: dict[bytes, bytes]) -> None:
    """Sessions, checkpoints and aliases, as far as what they name is still there."""
    if old is None:
        return
    with store.commit_point() as ledger:
        for table in ("sessions", "checkpoints"):
            try:
                rows = old.db.execute(f"SELECT * FROM {table}").fetchall()
            except (SubstrateError, sqlite3.Error):
                continue
            for row in rows:
                values = [moved.get(v, v) if isinstance(v, bytes) else v for v in tuple(row)]
                marks = ", ".join("?" * len(values))
                if table == "checkpoints" and row["commit_oid"] not in moved:
                    continue
                ledger.db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
                if table == "checkpoints":
                    tag = messages.checkpoint_tag(row["session_id"], row["seq"])
                    ledger.set_ref(tag, moved[row["commit_oid"]])
        ledger.db.executemany(
            "INSERT OR IGNORE INTO aliases VALUES (?, ?)",
            [(was, now) for was, now in moved.items() if was != now],
        )
