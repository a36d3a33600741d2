"""The ledger: every entry of history and what is known of it, in one SQLite file.

A transaction here is the commit point of each operation (see ``store.py``). Readers need no lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.history import schema
from substrate.system import afterwards

#: Entries of these kinds are work that Substrate did for a session (as opposed to outside edits).
SESSION_KINDS = ("command", "undo", "redo", "rollback", "restore", "squash")
#: Commands, but not the parts that a live one was recorded in: see `parts.py`. In a detail's JSON
#: only a key of ours is followed by a bare colon.
WHOLE_COMMANDS = """kind = 'command' AND detail NOT LIKE '%"part": %'"""
#: What `redo` can take back.
REVERSING_KINDS = ("undo", "rollback")

#: So many entries make SQLite's log up to two megabytes long, which is read at each opening.
_FOLD_EVERY = 8

Detail = dict[str, object]


class Entry(NamedTuple):
    seq: int
    pos: int
    command_id: str
    span_id: str | None
    session_id: str | None
    agent_id: str | None
    kind: str
    ts_ns: int
    duration_ms: int | None
    exit: int | None
    command: str
    commit: bytes | None
    squashed_into: str | None
    changed_files: int
    added_bytes: int
    detail: Detail


class NewEntry(NamedTuple):
    """An entry about to be written; the ledger gives it its place."""

    command_id: str
    kind: str
    ts_ns: int
    command: str
    session_id: str | None = None
    agent_id: str | None = None
    span_id: str | None = None
    duration_ms: int | None = None
    exit: int | None = None
    changed_files: int = 0
    added_bytes: int = 0
    detail: Detail = {}  # noqa: RUF012  a tuple: its default is replaced, never changed

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> NewEntry:
        return cls(**json.loads(text))


class Intent(NamedTuple):
    intent_id: str
    kind: str
    payload: Detail
    pid: int
    process_token: str
    boot_id: str
    ts_ns: int


class Ledger:
    """Rows in, rows out. What they mean is decided by the modules beside this one."""

    def __init__(self, path: Path, *, only_there: bool = False) -> None:
        """`only_there`: none is made."""
        self._path = path
        # Before it is opened: if it is replaced meanwhile, that shows later.
        self._file = schema.file_id(path)
        self.db = schema.connect(path, only_there=only_there)
        if self._file is None:
            self._file = schema.file_id(path)
        #: Whether there may be refs that no file is known to say.
        self.has_unpublished = True

    def close(self, *, entirely: bool = False) -> None:
        """Let go of the file.

        Who closes it last folds SQLite's log into it, with three syncs and everybody else locked
        out. A process that is about to end only leaves, and folds some now and then, unless it
        must let go `entirely`.
        """
        if afterwards.is_postponing() and not entirely:
            afterwards.leave_open(self.db)
            afterwards.do(self._fold_if_due)
        else:
            self.db.close()

    @property
    def is_current(self) -> bool:
        """Whether the file we opened still stands in its place (a repair puts it aside)."""
        return self._file is not None and schema.file_id(self._path) == self._file

    @property
    def is_ours_alone(self) -> bool:
        """Whether nobody else can look while we have it open: so it is on a full disk."""
        mode: str = self.db.execute("PRAGMA locking_mode").fetchone()[0]
        return mode == "exclusive"

    def version(self) -> int:
        """Changes when any other connection has written."""
        value: int = self.db.execute("PRAGMA data_version").fetchone()[0]
        return value

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """All or nothing, and if `durable`, safe from a power cut when it returns.

        Otherwise it is as safe as the next durable one, and from then on.
        """
        if not durable:
            self.db.execute("PRAGMA synchronous=NORMAL")
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:  # SQLite may have rolled back by itself (disk full)
                    self.db.execute("ROLLBACK")
                raise
        finally:
            if not durable:
                self.db.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """A transaction that is always taken back; an error at once if somebody else is writing."""
        self.db.execute("PRAGMA busy_timeout=0")
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                self.db.execute("ROLLBACK")
        finally:
            self.db.execute(f"PRAGMA busy_timeout={schema.PATIENCE_MS}")

    def _fold_if_due(self) -> None:
        """Move what can be moved out of SQLite's log while nobody is kept waiting.

        The log starts over then in the same file: a sync of what lies there already is quicker.
        """
        row = self.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        if row and row[0] % _FOLD_EVERY == 0:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def fold_log(self) -> None:
        """Move what SQLite's log holds into the database file, so that sizes tell the truth."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # -- meta ---------------------------------------------------------------------------------

    def meta(self, key: str) -> object:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        value: object = row["value"] if row else None
        return value

    def set_meta(self, key: str, value: str | int | bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def grew_by(self, added_bytes: int) -> None:
        """About how large the store is, without measuring it."""
        if added_bytes:
            known = self.meta("size_estimate")
            self.set_meta("size_estimate", (known if isinstance(known, int) else 0) + added_bytes)

    # -- entries ------------------------------------------------------------------------------

    def add(self, new: NewEntry, commit: bytes | None) -> Entry:
        row = self.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        seq = row[0] + 1 if row else 1
        detail = json.dumps(new.detail, sort_keys=True)
        self.db.execute(
            "INSERT INTO entries (seq, pos, command_id, span_id, session_id, agent_id, kind, ts_ns,"
            " duration_ms, exit, command, commit_oid, changed_files, added_bytes, detail)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, seq, new.command_id, new.span_id, new.session_id, new.agent_id, new.kind,
             new.ts_ns, new.duration_ms, new.exit, new.command, commit, new.changed_files,
             new.added_bytes, detail),
        )  # fmt: skip
        return Entry(
            seq, seq, new.command_id, new.span_id, new.session_id, new.agent_id, new.kind,
            new.ts_ns, new.duration_ms, new.exit, new.command, commit, None, new.changed_files,
            new.added_bytes, json.loads(detail),
        )  # fmt: skip

    def add_detail(self, entry: Entry, **more: object) -> Entry:
        """Inside a transaction: what became known of an entry only after it was made."""
        detail = {**entry.detail, **more}
        self.db.execute(
            "UPDATE entries SET detail = ? WHERE seq = ?",
            (json.dumps(detail, sort_keys=True), entry.seq),
        )
        return entry._replace(detail=detail)

    def by_command_id(self, command_id: str) -> Entry | None:
        return self._one("command_id = ?", (command_id,))

    def by_commit(self, commit: bytes) -> Entry | None:
        return self._one("commit_oid = ? AND squashed_into IS NULL ORDER BY pos DESC", (commit,))

    def by_seq(self, seq: int) -> Entry | None:
        return self._one("seq = ?", (seq,))

    def prefixed(self, column: str, prefix: str, limit: int = 9) -> list[Entry]:
        """Entries whose `column` (command_id or span_id) begins with `prefix`."""
        assert column in ("command_id", "span_id")
        high = prefix + "\U0010ffff"
        where = f"{column} >= ? AND {column} < ? ORDER BY {column} LIMIT ?"
        return self._many(where, (prefix, high, limit))

    def holding_span(self, span_id: str, limit: int = 9) -> list[Entry]:
        """Entries of commands inside which that span (or one that begins so) was made."""
        where = "instr(detail, 'nested_spans') AND instr(detail, ?) ORDER BY seq DESC LIMIT ?"
        return self._many(where, (f'"{span_id}', limit))

    def live(
        self,
        *,
        session_id: str | None = None,
        after_pos: int = -1,
        committed: bool = False,
        limit: int = -1,
    ) -> list[Entry]:
        """Entries that stand on their own (not swallowed by a squash), newest first."""
        where = "squashed_into IS NULL AND pos > ?"
        values: list[str | int] = [after_pos]
        if session_id is not None:
            where += " AND session_id = ?"
            values.append(session_id)
        if committed:
            where += " AND commit_oid IS NOT NULL"
        return self._many(where + " ORDER BY pos DESC LIMIT ?", (*values, limit))

    def iterate_live(self, session_id: str | None = None) -> Iterator[Entry]:
        """Like `live`, but one at a time: most callers stop after a few."""
        where, values = "squashed_into IS NULL", ()
        if session_id is not None:
            where, values = where + " AND session_id = ?", (session_id,)  # type: ignore[assignment]
        for row in self.db.execute(
            f"SELECT * FROM entries WHERE {where} ORDER BY pos DESC", values
        ):
            yield _entry(row)

    def members(self, squash_id: str) -> list[Entry]:
        """What a squash swallowed, oldest first."""
        return self._many("squashed_into = ? ORDER BY pos, seq", (squash_id,))

    def previous_commit(self, pos: int) -> Entry | None:
        """The committed entry right before `pos` on the line."""
        return self._one(
            "squashed_into IS NULL AND commit_oid IS NOT NULL AND pos < ? ORDER BY pos DESC",
            (pos,),
        )

    def tip(self) -> Entry | None:
        return self._one("squashed_into IS NULL AND commit_oid IS NOT NULL ORDER BY pos DESC", ())

    def _one(self, where: str, values: tuple[object, ...]) -> Entry | None:
        row = self.db.execute(f"SELECT * FROM entries WHERE {where} LIMIT 1", values).fetchone()
        return _entry(row) if row else None

    def _many(self, where: str, values: tuple[object, ...]) -> list[Entry]:
        return [
            _entry(row) for row in self.db.execute(f"SELECT * FROM entries WHERE {where}", values)
        ]

    # -- reversals ----------------------------------------------------------------------------

    def add_reversal(self, target_seq: int, by_seq: int, path: bytes) -> None:
        self.db.execute(
            "INSERT OR IGNORE INTO reversals VALUES (?, ?, ?)", (target_seq, by_seq, path)
        )

    def reversed_paths(self, seq: int) -> set[bytes]:
        """The paths of an entry that are taken back at present; ``{b""}`` stands for all of it.

        An undo that was itself undone does not count:  c7 <- undo u8 <- redo r9  leaves c7 done.
        """
        out: set[bytes] = set()
        rows = self.db.execute(
            "SELECT by_seq, path FROM reversals WHERE target_seq = ?", (seq,)
        ).fetchall()
        for row in rows:
            again = self.reversed_paths(row["by_seq"])
            path = bytes(row["path"])
            if b"" in again or path in again:
                continue
            out.add(path)
        return {b""} if b"" in out else out

    def reversed_by(self, seq: int) -> list[Entry]:
        """The undos and rollbacks that take an entry back at present."""
        return [
            by for by in self._many(
                "seq IN (SELECT by_seq FROM reversals WHERE target_seq = ?)", (seq,)
            )
            if b"" not in self.reversed_paths(by.seq)
        ]  # fmt: skip

    # -- intents ------------------------------------------------------------------------------

    def add_intent(self, intent: Intent) -> None:
        self.db.execute(
            "INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?)",
            (intent.intent_id, intent.kind, json.dumps(intent.payload), intent.pid,
             intent.process_token, intent.boot_id, intent.ts_ns),
        )  # fmt: skip

    def drop_intent(self, intent_id: str) -> None:
        self.db.execute("DELETE FROM intents WHERE intent_id = ?", (intent_id,))

    def has_intent(self, kind: str) -> bool:
        row = self.db.execute("SELECT 1 FROM intents WHERE kind = ? LIMIT 1", (kind,)).fetchone()
        return row is not None

    def intents(self) -> list[Intent]:
        rows = self.db.execute("SELECT * FROM intents ORDER BY ts_ns, intent_id")
        return [
            Intent(r["intent_id"], r["kind"], json.loads(r["payload"]), r["pid"],
                   r["process_token"], r["boot_id"], r["ts_ns"])
            for r in rows
        ]  # fmt: skip

    # -- objects and refs ---------------------------------------------------------------------

    def keep_objects(self, objects: list[tuple[bytes, str, bytes]]) -> None:
        self.db.executemany("INSERT OR IGNORE INTO pending_objects VALUES (?, ?, ?)", objects)
        self.set_meta("pending_bytes", self.pending_bytes() + sum(len(o[2]) for o in objects))

    def pending_objects(self) -> Iterator[tuple[bytes, str, bytes]]:
        for row in self.db.execute("SELECT oid, kind, data FROM pending_objects"):
            yield row["oid"], row["kind"], row["data"]

    def pending_bytes(self) -> int:
        """About how many bytes wait for a synced pack (a counter: adding up would cost O(n))."""
        value = self.meta("pending_bytes")
        return value if isinstance(value, int) else 0

    def forget_pending_objects(self) -> None:
        self.db.execute("DELETE FROM pending_objects")
        self.set_meta("pending_bytes", 0)

    def set_ref(self, name: str, oid: bytes | None) -> None:
        """Say where a ref stands (None: it goes); the file follows when it is published."""
        self.has_unpublished = True
        self.db.execute("INSERT OR REPLACE INTO refs VALUES (?, ?, 0)", (name, oid))

    def ref(self, name: str) -> bytes | None:
        row = self.db.execute("SELECT oid FROM refs WHERE name = ?", (name,)).fetchone()
        return row["oid"] if row else None

    def refs(self, *, unpublished_only: bool = False) -> dict[str, bytes | None]:
        where = " WHERE published = 0" if unpublished_only else ""
        rows = self.db.execute(f"SELECT name, oid FROM refs{where}")
        return {row["name"]: row["oid"] for row in rows}

    def refs_were_published(self) -> None:
        """Called inside the *next* transaction, so that it costs no sync of its own."""
        self.db.execute("DELETE FROM refs WHERE published = 0 AND oid IS NULL")
        self.db.execute("UPDATE refs SET published = 1 WHERE published = 0")


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        row["seq"], row["pos"], row["command_id"], row["span_id"], row["session_id"],
        row["agent_id"], row["kind"], row["ts_ns"], row["duration_ms"], row["exit"],
        row["command"], row["commit_oid"], row["squashed_into"], row["changed_files"],
        row["added_bytes"], json.loads(row["detail"]),
    )  # fmt: skip
