"""Checking a store: every object, every ref, every entry; what is wrong and what it breaks."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history.maintenance import set_aside_intent
from substrate.history.maintenance.compact import PRUNE
from substrate.history.query import line_authors, touched_paths
from substrate.history.record import agent_edits
from substrate.history.store import (
    ATTRS_REF,
    BRANCH,
    UNREADABLE,
    Entry,
    HistoryStore,
    NewEntry,
    compose,
    is_index_lost,
    parse_trailers,
    subject_of,
    trailers_of,
)
from substrate.objects.snapshots import Commit
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import refs
from substrate.system.process import Asked
from substrate.workspace.apply import Trash

_NS = 1_000_000_000


class Problem(NamedTuple):
    #: What is wrong.
    what: str
    #: Which commands (or refs) can no longer be shown or undone because of it.
    breaks: tuple[str, ...] = ()
    #: A kill left it, and the next call that writes clears it away.
    is_leftover: bool = False


def check(store: HistoryStore) -> list[Problem]:
    """Everything that is wrong; an empty list when the store is sound. Changes nothing."""
    # Git hashes every version of every file on one core: check the rest on another.
    repository = Asked(lambda: _check_repository(store))
    try:
        index = [*_check_ledger(store), *_check_agreement(store)]
        line = _check_line(store, is_sound=True)
    finally:
        damaged_objects = repository.answer()
    if damaged_objects:
        line = _check_line(store, is_sound=False)
    return [
        *index,
        *damaged_objects,
        *line,
        *_check_line_index(store),
        *_check_refs(store),
        *_check_places(store),
        *check_intents(store),
        *_check_trash(store),
    ]


def _check_ledger(store: HistoryStore) -> list[Problem]:
    try:
        rows = store.ledger.db.execute("PRAGMA integrity_check(20)").fetchall()
    except (SubstrateError, sqlite3.Error) as error:
        return [Problem(f"the history index is damaged: {error}")]
    return [Problem(f"the history index is damaged: {row[0]}") for row in rows if row[0] != "ok"]


def _check_agreement(store: HistoryStore) -> list[Problem]:
    """Detect a lost index: the first process that opened it has created an empty one."""
    if is_index_lost(store):
        return [Problem("the history index is empty although the history is not")]
    return []


def _check_repository(store: HistoryStore) -> list[Problem]:
    """What git itself says: it reads and hashes every object."""
    return [Problem(f"git: {line}") for line in store.git.fsck_strict()]


def _check_line(store: HistoryStore, *, is_sound: bool) -> list[Problem]:
    """Every entry's commit, its trees and attrs, and the chain of parents.

    `is_sound`: git can read everything reachable from the refs; it is not read again.
    """
    problems = []
    verified = _attrs_of_refs(store) if is_sound else set()
    expected: bytes | None = None
    for entry in store.ledger.live(committed=True):
        assert entry.commit is not None
        if expected is not None and entry.commit != expected:
            problems.append(
                Problem(f"{entry.command_id} is not on the line of history", (entry.command_id,))
            )
        is_known = expected is not None  # the newest entry may be a step ahead of the refs
        try:
            stored = store.objects.read_commit(entry.commit)
        except DamagedStoreError as error:
            problems.append(Problem(f"{entry.command_id}: {error.message}", (entry.command_id,)))
            expected = None
            continue
        is_read = is_known and _attrs_of(stored) in verified
        broken = "" if is_read else unreadable(store, entry)
        if broken:
            problems.append(Problem(broken, (entry.command_id,)))
        expected = stored.parents[0] if stored.parents else b""
        problems += _disagreement(entry, stored)
    return problems


def _disagreement(entry: Entry, stored: Commit) -> list[Problem]:
    """Report where the ledger disagrees with the entry's commit, which is verified by its hash."""
    said = [entry]
    if agent_edits.RECORDED_AS in entry.detail:
        said.append(agent_edits.as_committed(entry))
    if any(_agrees(one, stored) for one in said):
        return []
    what = f"the history index disagrees with the commit of {entry.command_id}"
    return [Problem(what, (entry.command_id,))]


def _agrees(entry: Entry, stored: Commit) -> bool:
    named = parse_trailers(stored.message)
    subject = stored.message.split(b"\n", 1)[0]
    wanted = trailers_of(entry, bytes.fromhex(named.attrs) if named else b"")
    said = entry.command if entry.kind == "squash" else subject_of(entry)
    return (
        compose(subject.decode("utf-8", "surrogateescape"), wanted) == stored.message
        and said.encode("utf-8", "surrogateescape") == subject
        and entry.ts_ns // _NS == stored.time_s
    )


def _attrs_of(stored: Commit) -> bytes:
    named = parse_trailers(stored.message)
    return bytes.fromhex(named.attrs) if named and named.attrs else b""


def _attrs_of_refs(store: HistoryStore) -> set[bytes]:
    """The attrs trees on the attrs branch, and the empty value for states without attrs."""
    found = {b""}
    commit = store.ledger.ref(ATTRS_REF)
    while commit:
        try:
            stored = store.objects.read_commit(commit)
        except DamagedStoreError:
            return set()
        found.add(stored.tree)
        commit = stored.parents[0] if stored.parents else None
    return found


def _check_line_index(store: HistoryStore) -> list[Problem]:
    """Check the index of touched paths, and the records of the line authors of squashes."""
    try:
        return [
            Problem(what) for what in (*touched_paths.damage(store), *line_authors.damage(store))
        ]
    except (SubstrateError, sqlite3.Error) as error:
        return [Problem(f"the index of touched paths cannot be read: {error}")]


def unreadable(store: HistoryStore, entry: Entry) -> str:
    """Why an entry's state cannot be read back, or ""; looks at what the entry changed."""
    assert entry.commit is not None
    try:
        after = store.snapshot_of(entry.commit)
        before = store.parent_snapshot(entry.commit)
        if before is None:
            nodes = [node for _, node in snapshots.walk(store.objects, after)]
        else:
            nodes = [c.new for c in snapshots.diff(store.objects, before, after)]
        for node in nodes:
            if node.has_content:
                store.objects.read_blob(node.oid)
    except DamagedStoreError as error:
        return f"{entry.command_id}: {error.message}"
    return ""


def _check_refs(store: HistoryStore) -> list[Problem]:
    problems = []
    head = store.git_dir / "HEAD"
    try:
        if head.read_bytes() != f"ref: {BRANCH}\n".encode():
            problems.append(Problem("HEAD does not name the branch", ("plain git commands",)))
    except OSError as error:
        problems.append(Problem(f"HEAD cannot be read: {error.strerror}"))
    wanted = {name: oid for name, oid in store.ledger.refs().items() if oid is not None}
    unpublished = store.ledger.refs(unpublished_only=True)
    # A compaction was killed: the call that finishes it writes the refs first.
    is_pruning = store.ledger.has_intent(PRUNE)
    for name, oid in wanted.items():
        try:
            found = refs.read_ref(store.git_dir, name)
        except SubstrateError as error:
            problems.append(Problem(error.message, (name,)))
            continue
        is_due = name in unpublished and (is_pruning or _is_a_step_behind(store, found, oid))
        if found != oid and not is_due:
            problems.append(Problem(f"{name} should be {oid.hex()[:12]} and is not", (name,)))
        if not store.objects.has(oid):
            problems.append(Problem(f"{name} points at a missing commit", (name,)))
    return problems


def _is_a_step_behind(store: HistoryStore, found: bytes | None, oid: bytes) -> bool:
    """Whether the ref's file is one commit behind the ledger: not damage, the next call fixes it.

    The writer was killed after its ledger transaction and before it wrote the file, perhaps by a
    process that wanted the lock.
    """
    try:
        return found in store.objects.read_commit(oid).parents
    except DamagedStoreError:
        return False


def check_intents(store: HistoryStore) -> list[Problem]:
    """Operations that were set aside, or that an older version could not finish."""
    problems = [
        Problem(f"{one.what} was set aside ({one.intent_id}): {one.reason}")
        for one in set_aside_intent.all_aside(store)
    ]
    for intent in store.ledger.intents():
        if intent.kind == UNREADABLE:
            problems.append(Problem(f"the record of an operation ({intent.intent_id}) is damaged"))
        if intent.kind == "arrive":
            with suppress(KeyError, ValueError, TypeError):
                command_id = NewEntry.from_json(str(intent.payload["entry"])).command_id
                if store.ledger.by_command_id(command_id) is not None:
                    problems.append(
                        Problem(f"{command_id} is recorded as interrupted, and is being brought in")
                    )
    return problems


def _check_places(store: HistoryStore) -> list[Problem]:
    """Check that other users cannot read the store, and that no leftover files fill the disk."""
    problems = []
    mode = stat.S_IMODE(os.stat(store.dir).st_mode)
    if os.name == "posix" and mode & 0o077 and _keeps_modes(store.dir):
        problems.append(Problem(f"{store.dir.name} is open to others (mode {mode:04o})"))
    open_intents = {intent.intent_id for intent in store.ledger.intents()}
    problems += [
        Problem(f"leftover of an interrupted operation: journal/{name}", is_leftover=True)
        for name in os.listdir(store.dir / "journal")
        if name not in open_intents
    ]
    problems += [
        Problem(f"leftover temporary pack: {name}", is_leftover=True)
        for name in os.listdir(store.git_dir / "objects" / "pack")
        if name.startswith(("tmp", ".tmp"))
    ]
    return problems


def _keeps_modes(directory: Path) -> bool:
    """Whether the file system stores modes: FAT and exFAT give every file the mount's mode."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            return not os.fstat(file.fileno()).st_mode & 0o077
    except OSError:
        return True


def _check_trash(store: HistoryStore) -> list[Problem]:
    """A damaged record affects its own item only: undo and `recover` still work for the rest."""
    return [
        Problem(f"the record of {one.location} in the trash is damaged: {one.reason}")
        for one in Trash(store.trash_dir).damaged()
    ]
