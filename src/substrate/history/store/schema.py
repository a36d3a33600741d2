"""The ledger's tables, and how a connection to them is opened."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from substrate.errors import (
    DamagedStoreError,
    DiskFullError,
    LockedError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.system import room
from substrate.system.sqlite_room import fill_holes, may_map

SCHEMA_VERSION = 1
#: How long one connection waits for another that is writing.
PATIENCE_MS = 30_000
#: How often one asks again that SQLite does not let wait.
_PAUSE_S = 0.005

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- One row per recorded command, outside edit, undo, … `seq` is the order of arrival; `pos` is the
-- place on the line of history, which a squash inherits from the last entry it swallowed.
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    pos INTEGER NOT NULL,
    command_id TEXT NOT NULL UNIQUE,
    span_id TEXT,
    session_id TEXT,
    agent_id TEXT,
    kind TEXT NOT NULL,
    ts_ns INTEGER NOT NULL,
    duration_ms INTEGER,
    exit INTEGER,
    command TEXT NOT NULL,
    commit_oid BLOB,              -- its commit on the present line; NULL: nothing changed
    squashed_into TEXT,           -- command_id of the squash that holds it now
    changed_files INTEGER NOT NULL,
    added_bytes INTEGER NOT NULL,
    detail TEXT NOT NULL          -- JSON: exact command, cwd, isolation, outcome, …
);
CREATE INDEX entries_by_pos ON entries (pos);
CREATE INDEX entries_by_session ON entries (session_id, pos);
CREATE INDEX entries_by_span ON entries (span_id);
CREATE INDEX entries_by_commit ON entries (commit_oid);
CREATE INDEX entries_by_squash ON entries (squashed_into) WHERE squashed_into IS NOT NULL;

-- `by_seq` took back `target_seq`: all of it (path '') or one path of it.
CREATE TABLE reversals (
    target_seq INTEGER NOT NULL, by_seq INTEGER NOT NULL, path BLOB NOT NULL,
    PRIMARY KEY (target_seq, by_seq, path)
) WITHOUT ROWID;
CREATE INDEX reversals_by ON reversals (by_seq);

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, agent_id TEXT, started_ns INTEGER NOT NULL,
    active_ns INTEGER NOT NULL, active_order INTEGER NOT NULL, closed_ns INTEGER,
    automatic INTEGER NOT NULL, start_commit BLOB, closed_commit BLOB
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    session_id TEXT NOT NULL, seq INTEGER NOT NULL, commit_oid BLOB NOT NULL,
    after_pos INTEGER NOT NULL, ts_ns INTEGER NOT NULL, message TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;

-- Every commit id that compaction replaced, and what holds it now.
CREATE TABLE aliases (old BLOB PRIMARY KEY, present BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE recoveries (
    ref TEXT PRIMARY KEY, commit_oid BLOB NOT NULL, ts_ns INTEGER NOT NULL,
    operation TEXT NOT NULL, command_id TEXT NOT NULL, paths TEXT NOT NULL
) WITHOUT ROWID;

-- What was begun and not finished: a running command, a tree being changed, a prune.
CREATE TABLE intents (
    intent_id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL,
    pid INTEGER NOT NULL, process_token TEXT NOT NULL, boot_id TEXT NOT NULL,
    ts_ns INTEGER NOT NULL
) WITHOUT ROWID;

-- Small objects whose loose copies were not synced; gone once they are in a synced pack.
CREATE TABLE pending_objects (oid BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL)
WITHOUT ROWID;

-- The refs as they should stand; `published` = 0 until the file is known to say so.
CREATE TABLE refs (name TEXT PRIMARY KEY, oid BLOB, published INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX refs_unpublished ON refs (published) WHERE published = 0;
"""


_REPAIR = "run `substrate fsck` to see the damage, `substrate fsck --repair` to mend it"


class LedgerConnection(sqlite3.Connection):
    """SQLite's failures in the product's own words."""

    def execute(self, *args: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*args)
        except sqlite3.Error as error:
            raise translated(error) from error
        except UnicodeEncodeError:  # bytes on the command line that are no text
            raise NotFoundError(
                "nothing here has a name that is not text", hint="`substrate log` lists the ids"
            ) from None

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        try:
            return super().executemany(*args)
        except sqlite3.Error as error:
            raise translated(error) from error


def translated(error: sqlite3.Error) -> SubstrateError:
    text = str(error)
    name = getattr(error, "sqlite_errorname", None) or ""
    # The second: no room for the shared-memory file that readers need too.
    if "disk is full" in text or name == "SQLITE_IOERR_SHMSIZE":
        return DiskFullError(
            "the disk is full: history could not be written",
            hint="free some space and try again; nothing that was recorded is lost",
        )
    if name.startswith("SQLITE_IOERR") and "READ" not in name:
        if room.file_size_is_limited():
            return WorkspaceError(
                f"the history index could not be written: {text}",
                hint="raise the limit of a file's size (ulimit -f), or make room on the disk",
            )
        return WorkspaceError(
            f"the history index could not be written: {text}",
            hint="the disk may be full or failing: make room or look after it, then try again",
        )
    # The second: others came and went a hundred times while it tried to read.
    if "locked" in text or name == "SQLITE_PROTOCOL":
        return LockedError("another process is busy with this history", hint="try again")
    if "readonly" in text or "unable to open" in text:
        return WorkspaceError(
            f"the history index cannot be opened: {text}",
            hint="check who owns .substrate-git and whether the disk is writable",
        )
    return DamagedStoreError(
        f"the history index cannot be read: {text}",
        hint=_REPAIR,
    )


def file_id(path: Path) -> tuple[int, int] | None:
    """Tells the file from another one in its place; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, *, only_there: bool = False) -> sqlite3.Connection:
    """Open the ledger, making its tables on first use; on a read-only disk, for reading only.

    `only_there`: no file is made if there is none, even if it went a moment ago.
    """
    if not path.parent.is_dir():
        raise DamagedStoreError("the history index is gone", hint=_REPAIR)
    try:
        if _is_frozen(path):
            return _open(f"{path.as_uri()}?immutable=1")
        name = f"{path.as_uri()}?mode=rw" if only_there else path
        connection = _open_with_index(path, name)
        connection.execute("PRAGMA synchronous=FULL")
        _migrate(connection)
    except sqlite3.Error as error:
        raise translated(error) from error
    return connection


def _open_with_index(path: Path, name: Path | str) -> sqlite3.Connection:
    """Readers share the log's index by a file of 32 kB. Where there is no room for it nobody else
    has it open either, and it is kept in memory: a full disk can still be asked what fills it."""
    if may_map(path):
        connection = _open(name)
        with suppress(DiskFullError):
            connection.execute("PRAGMA user_version")
            if fill_holes(path):
                return connection
        connection.close()
    connection = _open(name)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


def _open(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=PATIENCE_MS / 1000, factory=LedgerConnection,
        uri=isinstance(path, str),
    )  # fmt: skip
    connection.row_factory = sqlite3.Row
    return connection


def _is_frozen(path: Path) -> bool:
    """Nobody can write here, and no log waits to be merged into the file: it will not change."""
    wal = path.with_name(path.name + "-wal")
    return (
        path.exists()
        and not os.access(path.parent, os.W_OK)
        and not (wal.exists() and wal.stat().st_size)
    )


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION:
        raise RefusedError(
            f"this history was written by a newer Substrate (schema {version})",
            hint="upgrade Substrate; nothing was changed",
        )
    _keep_a_log(connection)
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """WAL + FULL: one append and one fdatasync a transaction. The file remembers that. Where WAL
    cannot work (network file systems) SQLite answers with another mode, as safe and only slower.

    Of several that come upon a new file at once each reads it first, so that SQLite refuses all
    but one on the spot: who waited with the file in its hands could wait for ever.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except LockedError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
