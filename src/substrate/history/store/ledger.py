"""The ledger: every entry of history and its details, in one SQLite file.

A transaction here is the commit point of each operation (see ``history_store.py``). Readers need
no lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DiskFullError, LockedError, WorkspaceMovedError
from substrate.history import read_only_ledger
from substrate.history.store import intents, schema
from substrate.history.store.intents import Intent
from substrate.system.process import deferred_work

#: Entries of these kinds are work that Substrate did for a session (as opposed to outside edits).
SESSION_KINDS = ("command", "edit", "undo", "redo", "rollback", "restore", "squash")
#: Commands, but not the parts of a command recorded live: see `live_parts.py`. In a detail's JSON
#: only one of our keys is followed by a bare colon.
WHOLE_COMMANDS = """kind = 'command' AND detail NOT LIKE '%"part": %'"""
#: The same, and edits that a coding agent made with its own tools: ``@`` counts these.
COUNTED_BY_AT = """kind IN ('command', 'edit') AND detail NOT LIKE '%"part": %'"""
#: What `redo` can take back.
REVERSING_KINDS = ("undo", "rollback")

#: This many entries make SQLite's log up to two megabytes long, and every open reads the log.
_FOLD_EVERY = 8

#: In an entry's detail: the prompt that led to it.
PROMPT_ID = "prompt_id"
#: In a squash's detail: how many entries of each kind it contains, and their sessions.
SQUASHED_KINDS, SQUASHED_SESSIONS = "kinds", "sessions"
#: In `meta`: what a lost disk took, and notes of work in the background, until a call has shown
#: them to the user.
TO_TELL = "loss_to_tell"
#: In `meta`: up to here (a `pos`) every entry of the line is in the index of touched paths.
INDEXED_UPTO = "touched_upto"
#: How many entries accumulate before they are indexed.
_INDEX_EVERY = 64
#: Up to this many unused pages are kept for future rows.
_FREE_PAGES = 64
#: An entry's columns, without a detail that is not needed: parsing thousands takes time.
_BRIEF = (
    "seq, pos, command_id, span_id, session_id, agent_id, kind, ts_ns, duration_ms, exit, command,"
    " commit_oid, squashed_into, changed_files, added_bytes,"
    " CASE kind WHEN 'squash' THEN detail ELSE '' END AS detail"
)
#: How many values one SQL statement lists at most.
_AT_ONCE = 500
#: What a pending object takes beside its bytes: a block as a loose object, its directory, its row.
_BYTES_BESIDE = 8 << 10

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
    """An entry about to be written; the ledger assigns its position."""

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


class Ledger:
    """Reads and writes rows. The modules beside this one decide what the rows mean."""

    def __init__(self, path: Path, *, only_there: bool = False) -> None:
        """`only_there`: the file must exist, and is not created."""
        self._path = path
        # Read before the open: if the file is replaced in between, `is_current` shows it.
        self._file = schema.file_id(path)
        self.db = schema.connect(path, only_there=only_there)
        if self._file is None:
            self._file = schema.file_id(path)
        #: Whether there may be refs that are not written to their files yet.
        self.has_unpublished = True
        #: Inside `rehearsal`: what is written now is rolled back at its end.
        self.is_rehearsing = False

    def close(self, *, entirely: bool = False) -> None:
        """Close the file.

        The last process to close it folds SQLite's log into it, with three syncs, and locks out
        every other process. A process that is about to end leaves the file open instead and folds
        the log only now and then, unless it must close it `entirely`.
        """
        if deferred_work.is_postponing() and not entirely:
            deferred_work.leave_open(self.db)
            deferred_work.do(self._fold_if_due)
        else:
            self.db.close()

    @property
    def is_current(self) -> bool:
        """Whether the open file is still the one at its path (a repair puts it aside)."""
        return self._file is not None and schema.file_id(self._path) == self._file

    @property
    def is_ours_alone(self) -> bool:
        """Whether no other process can read while it is open here: the case on a full disk."""
        mode: str = self.db.execute("PRAGMA locking_mode").fetchone()[0]
        return mode == "exclusive"

    def version(self) -> int:
        """Changes when any other connection has written."""
        value: int = self.db.execute("PRAGMA data_version").fetchone()[0]
        return value

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """All or nothing, and if `durable`, safe from a power cut when it returns.

        Otherwise the next durable transaction makes it safe, too. In a rehearsal it is rolled
        back with the rest.
        """
        if self.is_rehearsing:
            yield
            return
        if not durable:
            self.db.execute("PRAGMA synchronous=NORMAL")
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                if not self.is_current:
                    # The workspace that this transaction describes is elsewhere, or gone.
                    raise WorkspaceMovedError(
                        f"{self._path} was moved or removed during this operation, which is"
                        " not complete",
                        hint="put it back: the next substrate command finishes or reverses it",
                    )
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:  # SQLite may have rolled back by itself (disk full)
                    self.db.execute("ROLLBACK")
                raise
        finally:
            if not durable:
                self.db.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Several queries on one state of the ledger, whatever others write at the same time."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    @contextmanager
    def rehearsal(self, patience_ms: int = 0) -> Iterator[None]:
        """A transaction that is always rolled back, with all transactions inside it.

        `patience_ms`: how long to wait for another writer before raising an error.
        """
        has_unpublished = self.has_unpublished
        is_read_only = read_only_ledger.cannot_be_written(self._path)
        if is_read_only:
            self.db.close()
            self.db = schema.for_rehearsal(self._path)
            self.db.execute("PRAGMA query_only=0")
        self.db.execute(f"PRAGMA busy_timeout={patience_ms}")
        try:
            self.db.execute("BEGIN IMMEDIATE")
            self.is_rehearsing = True
            try:
                yield
            finally:
                self.is_rehearsing = False
                self.has_unpublished = has_unpublished
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
        finally:
            self.db.execute(f"PRAGMA busy_timeout={schema.PATIENCE_MS}")
            if is_read_only:
                self.db.execute("PRAGMA query_only=1")

    def _fold_if_due(self) -> None:
        """Move what can be moved out of SQLite's log without blocking other processes.

        The log then starts over in the same file: syncing blocks that already exist is faster.
        """
        row = self.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        if row and row[0] % _FOLD_EVERY == 0:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def fold_log(self) -> None:
        """Move the content of SQLite's log into the database file, so that sizes are exact."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def shrink(self) -> None:
        """Return the space of deleted rows to the disk, if that is worth it."""
        self.fold_log()
        free, pages = (
            self.db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("freelist_count", "page_count")
        )
        if free > _FREE_PAGES and free * 4 > pages:
            with suppress(LockedError, DiskFullError):  # another process reads: next time
                self.db.execute("VACUUM")
                self.fold_log()

    # -- meta ---------------------------------------------------------------------------------

    def meta(self, key: str) -> object:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        value: object = row["value"] if row else None
        return value

    def take_meta(self, key: str) -> object:
        """Read the value and delete it."""
        if self.meta(key) is None:
            return None
        with self.transaction(durable=False):
            value = self.meta(key)  # another process may have been faster
            self.db.execute("DELETE FROM meta WHERE key = ?", (key,))
        return value

    def set_meta(self, key: str, value: str | int | bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def grew_by(self, added_bytes: int) -> None:
        """Update the estimate of the store's size, without measuring it."""
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
        self._index_prompt(new.command_id, new.detail)
        return Entry(
            seq, seq, new.command_id, new.span_id, new.session_id, new.agent_id, new.kind,
            new.ts_ns, new.duration_ms, new.exit, new.command, commit, None, new.changed_files,
            new.added_bytes, json.loads(detail),
        )  # fmt: skip

    def add_detail(self, entry: Entry, **more: object) -> Entry:
        """Inside a transaction: add to the detail of an existing entry; None removes a key."""
        detail = {k: v for k, v in {**entry.detail, **more}.items() if v is not None}
        self.db.execute(
            "UPDATE entries SET detail = ? WHERE seq = ?",
            (json.dumps(detail, sort_keys=True), entry.seq),
        )
        if PROMPT_ID in more:
            self.db.execute("DELETE FROM prompt_entries WHERE command_id = ?", (entry.command_id,))
        self._index_prompt(entry.command_id, more)
        return entry._replace(detail=detail)

    def _index_prompt(self, command_id: str, detail: Detail) -> None:
        if PROMPT_ID in detail:
            self.db.execute(
                "INSERT OR IGNORE INTO prompt_entries VALUES (?, ?)",
                (detail[PROMPT_ID], command_id),
            )

    def of_prompt(self, prompt_id: str) -> list[Entry]:
        """The entries that a prompt led to, newest first; also those in squashes."""
        where = "command_id IN (SELECT command_id FROM prompt_entries WHERE prompt_id = ?)"
        return self._many(f"{where} ORDER BY pos DESC, seq DESC", (prompt_id,))

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
        """Entries of commands with a nested span of this id (or with this prefix)."""
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
        """Entries that are not part of a squash, newest first."""
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

    def live_after(self, pos: int, limit: int = -1) -> list[Entry]:
        """Entries of the line with a commit that come after `pos`, oldest first."""
        where = "squashed_into IS NULL AND commit_oid IS NOT NULL AND pos > ? ORDER BY pos LIMIT ?"
        return self._many(where, (pos, limit))

    def live_at(self, positions: Iterable[int], *, brief: bool = False) -> dict[int, Entry]:
        """The entries of the line at these positions. `brief`: only squashes have their detail."""
        columns = _BRIEF if brief else "*"
        found: dict[int, Entry] = {}
        wanted = sorted(set(positions))
        for start in range(0, len(wanted), _AT_ONCE):
            some = tuple(wanted[start : start + _AT_ONCE])
            marks = ", ".join("?" * len(some))
            rows = self.db.execute(
                f"SELECT {columns} FROM entries WHERE squashed_into IS NULL"
                f" AND commit_oid IS NOT NULL AND pos IN ({marks})",
                some,
            )
            found.update((row["pos"], _entry(row)) for row in rows)
        return found

    def live_newest_first(self, positions: Iterable[int]) -> Iterator[Entry]:
        """Entries at these positions, also without a commit, as an iterator."""
        wanted = sorted(set(positions), reverse=True)
        for start in range(0, len(wanted), _AT_ONCE):
            some = tuple(wanted[start : start + _AT_ONCE])
            marks = ", ".join("?" * len(some))
            where = f"squashed_into IS NULL AND pos IN ({marks}) ORDER BY pos DESC, seq DESC"
            yield from self._many(where, some)

    def positions_with(self, key: str) -> set[int]:
        """Positions of entries whose detail has this key (or contains exactly this text)."""
        rows = self.db.execute(
            "SELECT pos FROM entries WHERE squashed_into IS NULL AND instr(detail, ?)",
            (f'"{key}": ',),
        )
        return {row["pos"] for row in rows}

    def last_pos(self) -> int:
        row = self.db.execute("SELECT max(pos) AS last FROM entries").fetchone()
        return int(row["last"] or 0)

    def indexed_upto(self) -> int:
        value = self.meta(INDEXED_UPTO)
        return value if isinstance(value, int) else 0

    def waits_for_index(self) -> bool:
        return self.last_pos() - self.indexed_upto() >= _INDEX_EVERY

    def squashes(self) -> list[Entry]:
        """The squashes on the line, newest first."""
        return self._many("kind = 'squash' AND squashed_into IS NULL ORDER BY pos DESC", ())

    def shared_squashes(self, session_id: str | None = None, after_pos: int = -1) -> list[Entry]:
        """Squashes of more than one session's work (of that session's, if named), newest first."""
        found = self._many(
            "kind = 'squash' AND session_id IS NULL AND squashed_into IS NULL AND pos > ?"
            " ORDER BY pos DESC",
            (after_pos,),
        )
        return [e for e in found if session_id is None or session_id in held_sessions(e)]

    def members(self, squash_id: str) -> list[Entry]:
        """The entries inside a squash, oldest first."""
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
        found = self._many(f"{where} LIMIT 1", values)
        return found[0] if found else None

    def _many(self, where: str, values: tuple[object, ...]) -> list[Entry]:
        rows = self.db.execute(f"SELECT * FROM entries WHERE {where}", values)
        try:
            return [_entry(row) for row in rows]
        except sqlite3.Error as error:  # raised while rows are fetched: damaged text
            raise schema.translated(error) from error
        except (IndexError, TypeError, ValueError) as error:
            raise schema.damaged(f"an entry cannot be read: {error}") from error

    # -- reversals ----------------------------------------------------------------------------

    def add_reversal(self, target_seq: int, by_seq: int, path: bytes) -> None:
        self.db.execute(
            "INSERT OR IGNORE INTO reversals VALUES (?, ?, ?)", (target_seq, by_seq, path)
        )

    def reversed_paths(self, seq: int, ignoring: Collection[int] = ()) -> set[bytes]:
        """The paths of an entry that are taken back at present; ``{b""}`` means all of it.

        An undo that was itself undone does not count:  c7 <- undo u8 <- redo r9  leaves c7 done.
        `ignoring`: reversals (`Entry.seq`) that do not count either.
        """
        out: set[bytes] = set()
        rows = self.db.execute(
            "SELECT by_seq, path FROM reversals WHERE target_seq = ?", (seq,)
        ).fetchall()
        for row in rows:
            if row["by_seq"] in ignoring:
                continue
            again = self.reversed_paths(row["by_seq"], ignoring)
            path = bytes(row["path"])
            if b"" in again or path in again:
                continue
            out.add(path)
        return {b""} if b"" in out else out

    def reversed_whole_by(self, seq: int) -> list[int]:
        """The entries (`Entry.seq`) that an undo, redo or rollback took back as a whole."""
        rows = self.db.execute(
            "SELECT target_seq FROM reversals WHERE by_seq = ? AND path = ?", (seq, b"")
        )
        return [row["target_seq"] for row in rows]

    def taken_back_by(self, seq: int) -> list[Entry]:
        """The entries that an undo, redo or rollback took back, as a whole or in part."""
        return self._many("seq IN (SELECT target_seq FROM reversals WHERE by_seq = ?)", (seq,))

    def ever_reversed_by(self, seq: int) -> list[Entry]:
        """The undos, redos and rollbacks that took an entry back, also those undone since."""
        return self._many("seq IN (SELECT by_seq FROM reversals WHERE target_seq = ?)", (seq,))

    def reversed_by(self, seq: int) -> list[Entry]:
        """The undos and rollbacks that take an entry back at present."""
        found = self.ever_reversed_by(seq)
        return [by for by in found if b"" not in self.reversed_paths(by.seq)]

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
        return [intents.read(row) for row in rows]

    # -- objects and refs ---------------------------------------------------------------------

    def keep_objects(self, objects: list[tuple[bytes, str, bytes]]) -> None:
        self.db.executemany("INSERT OR IGNORE INTO pending_objects VALUES (?, ?, ?)", objects)
        added = sum(len(one[2]) + _BYTES_BESIDE for one in objects)
        self.set_meta("pending_bytes", self.pending_bytes() + added)

    def pending_objects(self) -> Iterator[tuple[bytes, str, bytes]]:
        for row in self.db.execute("SELECT oid, kind, data FROM pending_objects"):
            yield row["oid"], row["kind"], row["data"]

    def pending_bytes(self) -> int:
        """Roughly the disk that objects take which are not yet in a synced pack.

        A counter: summing up would cost O(n).
        """
        value = self.meta("pending_bytes")
        return value if isinstance(value, int) else 0

    def forget_pending_objects(self) -> None:
        self.db.execute("DELETE FROM pending_objects")
        self.set_meta("pending_bytes", 0)

    def set_ref(self, name: str, oid: bytes | None) -> None:
        """Set a ref (None: delete it); its file is written when it is published."""
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


def is_shared(entry: Entry) -> bool:
    """Whether a squash contains more than one session's work, or outside edits."""
    return entry.kind == "squash" and entry.session_id is None


def held_sessions(squash: Entry) -> list[str]:
    """The sessions whose commands a squash contains."""
    named = squash.detail.get(SQUASHED_SESSIONS)
    if isinstance(named, list):
        return [str(one) for one in named]
    return [squash.session_id] if squash.session_id else []


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        row["seq"], row["pos"], row["command_id"], row["span_id"], row["session_id"],
        row["agent_id"], row["kind"], row["ts_ns"], row["duration_ms"], row["exit"],
        row["command"], row["commit_oid"], row["squashed_into"], row["changed_files"],
        row["added_bytes"], json.loads(row["detail"]) if row["detail"] else {},
    )  # fmt: skip
