"""Rewriting the line: ranges become single commits, what follows them gets new parents."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from substrate.history.maintenance import squash_authors
from substrate.history.maintenance.retention import Decision, Range
from substrate.history.query import line_authors, touched_paths
from substrate.history.record import changed_paths
from substrate.history.store import (
    SQUASHED_KINDS,
    SQUASHED_SESSIONS,
    Entry,
    HistoryStore,
    Ledger,
    NewEntry,
    held_sessions,
    messages,
    write_commit,
)
from substrate.model import Change, RelPath
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.system import ids

#: How many sessions the subject of a commit names.
_NAMED_SESSIONS = 4


class Squash(NamedTuple):
    entry: NewEntry
    pos: int
    commit: bytes
    member_ids: tuple[str, ...]
    #: Places on the line that the members had.
    positions: list[int]
    #: What replaces the members in the index of touched paths.
    touches: list[touched_paths.Row]
    #: Path, and the record of its line authors.
    authors: list[tuple[RelPath, str]]


class _Step(NamedTuple):
    """From one state of the line to another, and the commit before it on the new line."""

    before: Snapshot | None
    after: Snapshot
    parent: bytes | None


class NewLine(NamedTuple):
    """The outcome of a rewrite, waiting for its commit point."""

    tip: bytes
    #: Old commit id → the commit that replaces it.
    moved: dict[bytes, bytes]
    squashes: list[Squash]
    #: ``cp/session/<id>/squashed`` tags to set.
    tags: dict[str, bytes]
    #: Every state of the new line with its time, oldest first.
    states: list[tuple[Snapshot, int]]

    def take_up(self, ledger: Ledger) -> None:
        """Inside the transaction: entries, aliases, checkpoints and sessions follow."""
        for squash in self.squashes:
            entry = ledger.add(squash.entry, squash.commit)
            ledger.db.execute("UPDATE entries SET pos = ? WHERE seq = ?", (squash.pos, entry.seq))
            ledger.db.executemany(
                "UPDATE entries SET squashed_into = ? WHERE command_id = ?",
                [(squash.entry.command_id, member) for member in squash.member_ids],
            )
            # Members of a squashed squash point here directly: an id resolves in one step.
            ledger.db.executemany(
                "UPDATE entries SET squashed_into = ? WHERE squashed_into = ?",
                [(squash.entry.command_id, member) for member in squash.member_ids],
            )
            touched_paths.squashed(ledger, squash.positions, squash.touches)
            ledger.db.executemany(
                "DELETE FROM line_authors WHERE pos = ?", [(pos,) for pos in squash.positions]
            )
            ledger.db.executemany(
                "INSERT INTO line_authors VALUES (?, ?, ?)",
                [(path, squash.pos, record) for path, record in squash.authors],
            )
        touched_paths.line_was_rewritten(ledger)
        pairs = [(new, old) for old, new in self.moved.items()]
        ledger.db.executemany("INSERT OR REPLACE INTO aliases (present, old) VALUES (?, ?)", pairs)
        ledger.db.executemany(
            "UPDATE entries SET commit_oid = ? WHERE commit_oid = ? AND squashed_into IS NULL",
            pairs,
        )
        for table, column in (
            ("checkpoints", "commit_oid"),
            ("sessions", "start_commit"),
            ("sessions", "closed_commit"),
        ):
            rows = ledger.db.execute(f"SELECT DISTINCT {column} AS oid FROM {table}").fetchall()
            for row in rows:
                if row["oid"] in self.moved:
                    ledger.db.execute(
                        f"UPDATE {table} SET {column} = ? WHERE {column} = ?",
                        (self.moved[row["oid"]], row["oid"]),
                    )


def rewrite_line(
    store: HistoryStore, batch: Batch, line: list[Entry], decision: Decision
) -> NewLine:
    """`line`: the committed entries, oldest first. Commits before the first range keep their id."""
    in_range = {cid: r for r in decision.ranges for cid in r.command_ids}
    out = NewLine(b"", {}, [], {}, [])
    parent: bytes | None = None
    before: Snapshot | None = None
    members: list[Entry] = []
    for i, entry in enumerate(line):
        assert entry.commit is not None
        snapshot = store.snapshot_of(entry.commit)
        here = in_range.get(entry.command_id)
        following = in_range.get(line[i + 1].command_id) if i + 1 < len(line) else None
        if here is not None:
            members.append(entry)
            if following == here:
                continue
            step = _Step(before, snapshot, parent)
            parent = _write_squash(store, batch, out, here, members, step)
            members = []
        else:
            parent = _keep(store, batch, out, entry, snapshot, parent)
        out.states.append((snapshot, entry.ts_ns))
        before = snapshot
    assert parent is not None
    return out._replace(tip=parent)


def _keep(
    store: HistoryStore,
    batch: Batch,
    out: NewLine,
    entry: Entry,
    snapshot: Snapshot,
    parent: bytes | None,
) -> bytes:
    assert entry.commit is not None
    stored = store.objects.read_commit(entry.commit)
    if stored.parents == ((parent,) if parent else ()):
        return entry.commit
    subject = stored.message.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
    commit = write_commit(batch, snapshot, parent, entry, subject)
    out.moved[entry.commit] = commit
    return commit


def _write_squash(
    store: HistoryStore,
    batch: Batch,
    out: NewLine,
    squashed: Range,
    members: list[Entry],
    step: _Step,
) -> bytes:
    first, last = members[0], members[-1]
    before, snapshot, parent = step
    changes = snapshots.diff(batch, before, snapshot) if before else []
    authors = squash_authors.authors_of(store, members, before, snapshot)
    kinds, session_ids = _contents(members)
    subject = _subject(squashed, first, last, kinds, session_ids)
    new = NewEntry(
        ids.new_id("c"), "squash", last.ts_ns, subject, session_id=squashed.session_id,
        agent_id=last.agent_id if squashed.session_id else None,
        changed_files=len(changed_paths(changes)), added_bytes=_bytes_of(batch, changes),
        detail={"reason": squashed.reason, "first": first.command_id, "last": last.command_id,
                "commands": len(squashed.command_ids), SQUASHED_KINDS: kinds,
                SQUASHED_SESSIONS: session_ids, line_authors.MAIN_AUTHOR: list(authors.main)},
    )  # fmt: skip
    commit = write_commit(batch, snapshot, parent, new, subject)
    touches = touched_paths.rows_of(batch, last.pos, changes)
    positions = [member.pos for member in members]
    out.squashes.append(
        Squash(new, last.pos, commit, squashed.command_ids, positions, touches, authors.rows)
    )
    for member in members:
        assert member.commit is not None
        out.moved[member.commit] = commit
    if squashed.grain != "checkpoint":
        out.tags.update((messages.session_squashed_tag(one), commit) for one in session_ids)
    return commit


def _contents(members: list[Entry]) -> tuple[dict[str, int], list[str]]:
    """How many entries of each kind these hold, and the sessions they come from."""
    kinds: Counter[str] = Counter()
    session_ids: dict[str, None] = {}
    for member in members:
        inner = member.detail.get(SQUASHED_KINDS)
        if isinstance(inner, dict):
            kinds.update(inner)
        elif member.kind == "squash":
            kinds["command"] += int(str(member.detail.get("commands", 1)))
        else:
            kinds[member.kind] += 1
        found = held_sessions(member) if member.kind == "squash" else [member.session_id]
        session_ids.update(dict.fromkeys(one for one in found if one))
    return dict(kinds), list(session_ids)


def _subject(
    squashed: Range, first: Entry, last: Entry, kinds: dict[str, int], session_ids: list[str]
) -> str:
    """Name the session; for a mixed squash, name every kind of entry it contains."""
    if squashed.session_id is None:
        return messages.mixed_squash_subject(
            first.command_id, last.command_id, kinds, session_ids[:_NAMED_SESSIONS],
            len(session_ids) - _NAMED_SESSIONS,
        )  # fmt: skip
    if squashed.grain == "session":
        return messages.session_squash_subject(squashed.session_id)
    return messages.checkpoint_squash_subject(
        squashed.session_id, first.command_id, last.command_id
    )


def _bytes_of(batch: Batch, changes: list[Change]) -> int:
    """Roughly the bytes that this squash keeps: the contents at its end."""
    oids = {change.new.oid for change in changes if change.new.has_content}
    return sum(len(batch.read_blob(oid)) for oid in oids)
