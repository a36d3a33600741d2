"""Carrying what can still be read from a damaged store into a new one.

    ledger readable   its rows move over as they are, so that order, ids, undone marks and
                      squashes stay; every commit is made again on a new line
    ledger gone       the line, sessions, checkpoints and recovery refs are read from git

In both cases a state that cannot be read completely is lost: its entry stays and says so.
Everything is written in one commit point of the new store.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history.maintenance import salvage_git, salvage_rows
from substrate.history.store import (
    ATTRS_REF,
    BRANCH,
    Entry,
    HistoryStore,
    Ledger,
    NewEntry,
    parse_trailers,
    write_attrs_commit,
    write_commit,
)
from substrate.objects.snapshots import MODE_DIR, Commit, Snapshot, serialize_tree
from substrate.objects.store import Batch, ObjectStore


class CarriedOver(NamedTuple):
    kept: list[str]
    lost: list[str]


def carry_over(store: HistoryStore, quarantine: Path) -> CarriedOver:
    """Rebuild the line in the (empty) new store; it begins with the first readable state."""
    objects = ObjectStore(quarantine / ".git")
    rows = salvage_rows.read(quarantine / "index" / "history.db")
    try:
        with Batch(store.objects) as batch:
            line = NewLine(objects, batch)
            found = rows.line if rows else salvage_git.line(quarantine / ".git", objects)
            for commit, entry in found:
                line.add(commit, entry)
            refs = rows.recoveries if rows else salvage_git.recovery_refs(quarantine / ".git")
            kept_refs = {ref: oid for ref, oid in refs.items() if _copy_whole(objects, batch, oid)}
            with store.commit_point(batch) as ledger:
                line.take_up(ledger)
                if rows:
                    rows.write(ledger, line.moved, line.stands_for, kept_refs)
                else:
                    salvage_git.write(quarantine / ".git", store, found, line.moved, kept_refs)
                for ref, oid in kept_refs.items():
                    ledger.set_ref(ref, oid)
    finally:
        objects.close()
    return CarriedOver(line.kept, line.lost)


class NewLine:
    """The line of commits made again in a new store, as far as their states can be read."""

    def __init__(self, objects: ObjectStore, batch: Batch) -> None:
        self._objects = objects
        self._batch = batch
        self._tip: bytes | None = None
        self._attrs = b""
        self._attrs_tip: bytes | None = None
        self._waiting: list[bytes] = []
        #: Old commit id → the new commit of the same state.
        self.moved: dict[bytes, bytes] = {}
        self.kept: list[str] = []
        self.lost: list[str] = []
        self._instead: dict[bytes, bytes] = {}

    def add(self, commit: bytes, entry: Entry | NewEntry) -> None:
        stored = _read_commit(self._objects, commit)
        snapshot = _copy_state(self._objects, self._batch, stored) if stored else None
        if stored is None or snapshot is None:
            self.lost.append(entry.command_id)
            self._waiting.append(commit)
            return
        subject = stored.message.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
        self._tip = write_commit(self._batch, snapshot, self._tip, entry, subject)
        if snapshot.attrs and snapshot.attrs != self._attrs:
            self._attrs_tip = write_attrs_commit(
                self._batch, snapshot.attrs, self._attrs_tip, entry.ts_ns
            )
        self._attrs = snapshot.attrs
        self.moved[commit] = self._tip
        self.kept.append(entry.command_id)
        # What a lost command changed is now part of the next command's change.
        self._instead.update(dict.fromkeys(self._waiting, self._tip))
        self._waiting = []

    @property
    def stands_for(self) -> dict[bytes, bytes]:
        """Every old commit id → the commit that replaces it, also for lost states."""
        last = dict.fromkeys(self._waiting, self._tip) if self._tip else {}
        return {**self._instead, **self.moved, **{k: v for k, v in last.items() if v}}

    def take_up(self, ledger: Ledger) -> None:
        if self._tip:
            ledger.set_ref(BRANCH, self._tip)
        if self._attrs_tip:
            ledger.set_ref(ATTRS_REF, self._attrs_tip)


def _read_commit(objects: ObjectStore, oid: bytes) -> Commit | None:
    try:
        return objects.read_commit(oid)
    except DamagedStoreError:
        return None


def _copy_state(objects: ObjectStore, batch: Batch, commit: Commit) -> Snapshot | None:
    """The whole state a commit names, in the new store; None if any part cannot be read."""
    trailers = parse_trailers(commit.message)
    attrs = bytes.fromhex(trailers.attrs) if trailers and trailers.attrs else b""
    try:
        for tree in (commit.tree, attrs):
            if tree:
                _copy_tree(objects, batch, tree)
    except DamagedStoreError:
        return None
    return Snapshot(commit.tree, attrs)


def _copy_tree(objects: ObjectStore, batch: Batch, top: bytes) -> None:
    """Copy a tree, children first: a tree that is already there is complete."""
    stack: list[tuple[bytes, bool]] = [(top, False)]
    while stack:
        oid, children_done = stack.pop()
        if batch.has(oid):
            continue
        tree = objects.read_tree(oid)
        if children_done:
            batch.add("tree", serialize_tree(tree))
            continue
        stack.append((oid, True))
        for mode, child in tree.values():
            if mode == MODE_DIR:
                stack.append((child, False))
            elif not batch.has(child):
                batch.add_blob(objects.read_blob(child))


def _copy_whole(objects: ObjectStore, batch: Batch, commit: bytes) -> bool:
    """A commit with its parents and their states, under the same ids; False if it is damaged.

    For recovery refs, whose only parent keeps their attrs.
    """
    try:
        kind, data = objects.read(commit)
        parsed = objects.read_commit(commit)
        if _copy_state(objects, batch, parsed) is None:
            return False
        if not all(_copy_whole(objects, batch, parent) for parent in parsed.parents):
            return False
        batch.add(kind, data)
    except DamagedStoreError:
        return False
    return True
