"""Checking a store: every object, every ref, every entry; what is wrong and what it breaks."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history.ledger import Entry
from substrate.history.messages import BRANCH
from substrate.history.store import HistoryStore, is_index_lost
from substrate.objects import refs
from substrate.objects import snapshot as snapshots


class Problem(NamedTuple):
    #: What is wrong.
    what: str
    #: Which commands (or refs) can no longer be shown or undone because of it.
    breaks: tuple[str, ...] = ()


def check(store: HistoryStore) -> list[Problem]:
    """Everything that is wrong; an empty list when the store is sound. Changes nothing."""
    return [
        *_check_ledger(store),
        *_check_agreement(store),
        *_check_repository(store),
        *_check_line(store),
        *_check_refs(store),
        *_check_places(store),
    ]


def _check_ledger(store: HistoryStore) -> list[Problem]:
    try:
        rows = store.ledger.db.execute("PRAGMA integrity_check(20)").fetchall()
    except (SubstrateError, sqlite3.Error) as error:
        return [Problem(f"the history index is damaged: {error}")]
    return [Problem(f"the history index is damaged: {row[0]}") for row in rows if row[0] != "ok"]


def _check_agreement(store: HistoryStore) -> list[Problem]:
    """An index that was lost is begun anew, empty, by whoever opens it."""
    if is_index_lost(store):
        return [Problem("the history index is empty although the history is not")]
    return []


def _check_repository(store: HistoryStore) -> list[Problem]:
    """What git itself says: it reads and hashes every object."""
    return [Problem(f"git: {line}") for line in store.git.fsck_strict()]


def _check_line(store: HistoryStore) -> list[Problem]:
    """Every entry's commit, its trees and attrs, and the chain of parents."""
    problems = []
    expected: bytes | None = None
    for entry in store.ledger.live(committed=True):
        assert entry.commit is not None
        if expected is not None and entry.commit != expected:
            problems.append(
                Problem(f"{entry.command_id} is not on the line of history", (entry.command_id,))
            )
        broken = unreadable(store, entry)
        if broken:
            problems.append(Problem(broken, (entry.command_id,)))
        try:
            parents = store.objects.read_commit(entry.commit).parents
            expected = parents[0] if parents else b""
        except DamagedStoreError:
            expected = None
    return problems


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
        if head.read_text() != f"ref: {BRANCH}\n":
            problems.append(Problem("HEAD does not name the branch", ("plain git commands",)))
    except OSError as error:
        problems.append(Problem(f"HEAD cannot be read: {error.strerror}"))
    wanted = {name: oid for name, oid in store.ledger.refs().items() if oid is not None}
    unpublished = store.ledger.refs(unpublished_only=True)
    for name, oid in wanted.items():
        try:
            found = refs.read_ref(store.git_dir, name)
        except SubstrateError as error:
            problems.append(Problem(error.message, (name,)))
            continue
        if found != oid and not (name in unpublished and _is_a_step_behind(store, found, oid)):
            problems.append(Problem(f"{name} should be {oid.hex()[:12]} and is not", (name,)))
        if not store.objects.has(oid):
            problems.append(Problem(f"{name} points at a missing commit", (name,)))
    return problems


def _is_a_step_behind(store: HistoryStore, found: bytes | None, oid: bytes) -> bool:
    """Who wrote it down in the ledger was ended before he came to the file, perhaps by us, who
    wanted the lock: the next call does that."""
    try:
        return found in store.objects.read_commit(oid).parents
    except DamagedStoreError:
        return False


def _check_places(store: HistoryStore) -> list[Problem]:
    """Nobody else may read the store, and no leftover may fill the disk."""
    problems = []
    mode = stat.S_IMODE(os.stat(store.dir).st_mode)
    if os.name == "posix" and mode & 0o077:
        problems.append(Problem(f"{store.dir.name} is open to others (mode {mode:04o})"))
    open_intents = {intent.intent_id for intent in store.ledger.intents()}
    problems += [
        Problem(f"leftover of an interrupted operation: journal/{name}")
        for name in os.listdir(store.dir / "journal")
        if name not in open_intents
    ]
    problems += [
        Problem(f"leftover temporary pack: {name}")
        for name in os.listdir(store.git_dir / "objects" / "pack")
        if name.startswith(("tmp", ".tmp"))
    ]
    return problems
