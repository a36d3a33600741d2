"""The line rewritten: ranges become single commits, what follows them gets new parents."""

from __future__ import annotations

from typing import NamedTuple

from substrate.history import messages
from substrate.history.ledger import Entry, Ledger, NewEntry
from substrate.history.line import write_commit
from substrate.history.observe import changed_paths
from substrate.history.retention import Decision, Range
from substrate.history.store import HistoryStore
from substrate.model.nodes import Change
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.snapshot import Snapshot
from substrate.system import ids


class Squash(NamedTuple):
    entry: NewEntry
    pos: int
    commit: bytes
    member_ids: tuple[str, ...]


class NewLine(NamedTuple):
    """The outcome of a rewrite, waiting for its commit point."""

    tip: bytes
    #: Old commit id → the commit that stands for it now.
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
    """`line`: the committed entries, oldest first. What precedes the first range keeps its ids."""
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
            step = (before, snapshot)
            parent = _write_squash(batch, out, here, members, step, parent)
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
    batch: Batch,
    out: NewLine,
    squashed: Range,
    members: list[Entry],
    step: tuple[Snapshot | None, Snapshot],
    parent: bytes | None,
) -> bytes:
    first, last = members[0], members[-1]
    before, snapshot = step
    changes = snapshots.diff(batch, before, snapshot) if before else []
    if squashed.grain == "session":
        subject = messages.session_squash_subject(squashed.session_id)
    else:
        subject = messages.checkpoint_squash_subject(
            squashed.session_id, first.command_id, last.command_id
        )
    new = NewEntry(
        ids.new_id("c"), "squash", last.ts_ns, subject,
        session_id=squashed.session_id, agent_id=last.agent_id,
        changed_files=len(changed_paths(changes)), added_bytes=_bytes_of(batch, changes),
        detail={"reason": squashed.reason, "first": first.command_id, "last": last.command_id,
                "commands": len(squashed.command_ids)},
    )  # fmt: skip
    commit = write_commit(batch, snapshot, parent, new, subject)
    out.squashes.append(Squash(new, last.pos, commit, squashed.command_ids))
    for member in members:
        assert member.commit is not None
        out.moved[member.commit] = commit
    if squashed.grain == "session":
        out.tags[messages.session_squashed_tag(squashed.session_id)] = commit
    return commit


def _bytes_of(batch: Batch, changes: list[Change]) -> int:
    """About what this squash keeps alive: the contents it ends with."""
    oids = {change.new.oid for change in changes if change.new.has_content}
    return sum(len(batch.read_blob(oid)) for oid in oids)
