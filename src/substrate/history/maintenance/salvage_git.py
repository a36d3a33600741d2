"""A history whose ledger is gone, read from its git repository alone.

The trailers of a commit describe its entry, tags hold checkpoints and the ends of sessions, and
recovery refs hold the states before something was replaced. Exact commands, durations and the
marks of what was undone are lost with the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history.store import (
    BRANCH,
    RECOVERY_PREFIX,
    Entry,
    HistoryStore,
    NewEntry,
    messages,
    parse_trailers,
)
from substrate.objects.snapshots import Commit
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import ObjectStore, refs

_NS = 10**9

Line = Sequence[tuple[bytes, Entry | NewEntry]]


def line(git_dir: Path, objects: ObjectStore) -> list[tuple[bytes, Entry | NewEntry]]:
    """The line of the branch; if that is gone, the longest line of commits with trailers."""
    tip = _read_ref(git_dir, BRANCH)
    best = _follow(objects, tip) if tip else []
    if not best:
        lines = [_follow(objects, start) for start in _newest_commits(objects)]
        best = max(lines, key=len, default=[])
    return best


def recovery_refs(git_dir: Path) -> dict[str, bytes]:
    return _readable_refs(git_dir, RECOVERY_PREFIX)


def write(
    git_dir: Path,
    store: HistoryStore,
    old_line: Line,
    moved: Mapping[bytes, bytes],
    kept_refs: Mapping[str, bytes],
) -> None:
    """Write entries, sessions, checkpoints and recovery refs. Inside the commit point."""
    known: dict[bytes, Entry] = {}
    order = 0
    for old, new in old_line:
        if old not in moved or not isinstance(new, NewEntry):
            continue
        entry = store.ledger.add(new, moved[old])
        known[old] = entry
        if entry.session_id:
            order += 1
            _session(store, entry, order)
    for name, oid in _readable_refs(git_dir, "refs/tags/cp/").items():
        if oid in known:
            _tag(store, name, known[oid])
    for ref, oid in kept_refs.items():
        _recovery(store, ref, oid)
    store.ledger.db.executemany(
        "INSERT OR IGNORE INTO aliases VALUES (?, ?)",
        [(old, new) for old, new in moved.items() if old != new],
    )


def _follow(objects: ObjectStore, commit: bytes | None) -> list[tuple[bytes, Entry | NewEntry]]:
    found: list[tuple[bytes, Entry | NewEntry]] = []
    while commit:
        try:
            stored = objects.read_commit(commit)
        except DamagedStoreError:
            break
        entry = _entry(stored)
        if entry is None:
            break
        found.append((commit, entry))
        commit = stored.parents[0] if stored.parents else None
    return found[::-1]


def _entry(stored: Commit) -> NewEntry | None:
    named = parse_trailers(stored.message)
    if named is None or stored.message.startswith(b"recovery:"):
        return None
    subject = stored.message.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
    command = subject.partition(f"{named.command_id} ")[2] or subject
    return NewEntry(
        named.command_id, named.kind, stored.time_s * _NS, messages.summary_of(command),
        named.session_id, named.agent_id, named.span_id, exit=named.exit,
    )  # fmt: skip


def _newest_commits(objects: ObjectStore) -> list[bytes]:
    """Commits that no other commit has for a parent."""
    commits: dict[bytes, Commit] = {}
    for oid in objects.all_oids():
        try:
            if objects.read(oid)[0] == "commit":
                commits[oid] = objects.read_commit(oid)
        except DamagedStoreError:
            continue
    parents = {parent for commit in commits.values() for parent in commit.parents}
    return [oid for oid, commit in commits.items() if oid not in parents and _entry(commit)]


def _session(store: HistoryStore, entry: Entry, order: int) -> None:
    store.ledger.db.execute(
        "INSERT OR IGNORE INTO sessions (session_id, agent_id, started_ns, active_ns,"
        " active_order, automatic, start_commit) VALUES (?, ?, ?, ?, ?, 0, ?)",
        (entry.session_id, entry.agent_id, entry.ts_ns, entry.ts_ns, order, entry.commit),
    )
    store.ledger.db.execute(
        "UPDATE sessions SET active_ns = ?, active_order = ? WHERE session_id = ?",
        (entry.ts_ns, order, entry.session_id),
    )


def _tag(store: HistoryStore, name: str, entry: Entry) -> None:
    """``cp/task/<session>/<seq>`` or ``cp/session/<session>/closed``."""
    parts = name.removeprefix("refs/tags/cp/").split("/")
    if len(parts) != 3 or entry.commit is None:
        return
    kind, session, last = parts
    if kind == "task" and last.isdigit():
        store.ledger.db.execute(
            "INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)",
            (session, int(last), entry.commit, entry.pos, entry.ts_ns, ""),
        )
    elif last == "closed":
        store.ledger.db.execute(
            "UPDATE sessions SET closed_ns = ?, closed_commit = ? WHERE session_id = ?",
            (entry.ts_ns, entry.commit, session),
        )
    store.ledger.set_ref(name, entry.commit)


def _recovery(store: HistoryStore, ref: str, oid: bytes) -> None:
    """Rebuild the row of a recovery ref: its paths are what the operation's commit changed."""
    command_id = ref.removeprefix(RECOVERY_PREFIX)
    operation = store.ledger.by_command_id(command_id)
    if operation is None or operation.commit is None:
        return
    before = store.parent_snapshot(operation.commit)
    after = store.snapshot_of(operation.commit)
    changes = snapshots.diff(store.objects, before, after) if before else []
    store.ledger.db.execute(
        "INSERT OR IGNORE INTO recoveries VALUES (?, ?, ?, ?, ?, ?)",
        (ref, oid, operation.ts_ns, operation.kind, command_id,
         json.dumps([change.path.hex() for change in changes])),
    )  # fmt: skip


def _read_ref(git_dir: Path, name: str) -> bytes | None:
    try:
        return refs.read_ref(git_dir, name)
    except (SubstrateError, OSError):
        return None


def _readable_refs(git_dir: Path, prefix: str) -> dict[str, bytes]:
    """One by one, so that a damaged ref does not hide the others."""
    out = {}
    for directory, _, names in os.walk(git_dir / prefix):
        for name in names:
            full = os.path.relpath(os.path.join(directory, name), git_dir).replace(os.sep, "/")
            oid = _read_ref(git_dir, full)
            if oid is not None:
                out[full] = oid
    return out
