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
from substrate.history import read_only_ledger
from substrate.history.store import old_hold_texts
from substrate.system.files import files, fill_holes, may_map
from substrate.system.process import rlimit_check

SCHEMA_VERSION = 4
#: How long one connection waits for another that is writing.
PATIENCE_MS = 30_000
#: SQLite opens paths of up to 512 bytes, with room for the 8 that it appends; links do not help,
#: because it follows them first.
_LONGEST_PATH = 504
#: When the log starts over, a larger one is cut to this size; otherwise it stays at its largest.
_LOG_BYTES = 1 << 20
#: The pause between retries of a statement for which SQLite does not wait itself.
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

#: Tables added after the first version; a new ledger has them as well.
_ADDED = {
    2: """
-- Which entries (by `pos`) touched which paths: an index, see `touched.py`. Path '': a wide entry.
CREATE TABLE touched (
    path BLOB NOT NULL, pos INTEGER NOT NULL, old BLOB, new BLOB, hunks BLOB,
    PRIMARY KEY (path, pos)
) WITHOUT ROWID;
CREATE INDEX touched_by_pos ON touched (pos);

-- Whose the lines of a file are where a squash (at `pos`) holds more than one author's work.
CREATE TABLE line_authors (
    path BLOB NOT NULL, pos INTEGER NOT NULL, authors TEXT NOT NULL, PRIMARY KEY (path, pos)
) WITHOUT ROWID;
CREATE INDEX line_authors_by_pos ON line_authors (pos);
""",
    3: "",  # reasons for holding a world are values: `old_hold_texts.convert`
    4: """
-- Which of our sessions a coding agent's own session is; a sub-agent's names its parent.
CREATE TABLE agent_sessions (
    agent TEXT NOT NULL, agent_session TEXT NOT NULL, session_id TEXT NOT NULL,
    parent_id TEXT, model TEXT, active_ns INTEGER NOT NULL, ended_ns INTEGER,
    PRIMARY KEY (agent, agent_session)
) WITHOUT ROWID;
CREATE INDEX agent_sessions_by_session ON agent_sessions (session_id);

-- What a user asked a coding agent for; `text` is redacted, `agent_prompt` is the agent's own id.
CREATE TABLE prompts (
    prompt_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, agent_prompt TEXT NOT NULL,
    text TEXT NOT NULL, model TEXT, started_ns INTEGER NOT NULL, ended_ns INTEGER
) WITHOUT ROWID;
CREATE INDEX prompts_by_session ON prompts (session_id, started_ns);

-- The entries that a prompt led to: an index of `prompt_id` in their details.
CREATE TABLE prompt_entries (
    prompt_id TEXT NOT NULL, command_id TEXT NOT NULL, PRIMARY KEY (prompt_id, command_id)
) WITHOUT ROWID;
CREATE INDEX prompt_entries_by_command ON prompt_entries (command_id);

-- Tool calls that a coding agent announced and has not reported as finished.
CREATE TABLE tool_calls (
    session_id TEXT NOT NULL, call_id TEXT NOT NULL, tool TEXT NOT NULL, paths TEXT NOT NULL,
    is_shell INTEGER NOT NULL, started_ns INTEGER NOT NULL, after_seq INTEGER NOT NULL,
    PRIMARY KEY (session_id, call_id)
) WITHOUT ROWID;
""",
}


_REPAIR = "run `substrate fsck` to see the damage, `substrate fsck --repair` to mend it"


class LedgerConnection(sqlite3.Connection):
    """Translates SQLite's errors into the product's own."""

    def execute(self, *args: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*args)
        except sqlite3.Error as error:
            raise translated(error) from error
        except UnicodeEncodeError:  # bytes on the command line that are not text
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
    # The second condition: no room for the shared-memory file that readers need, too.
    if "disk is full" in text or name == "SQLITE_IOERR_SHMSIZE":
        return DiskFullError(
            "the disk is full: history could not be written",
            hint="free some space and try again; nothing that was recorded is lost",
        )
    if name.startswith("SQLITE_IOERR") and "READ" not in name:
        if rlimit_check.file_size_is_limited():
            return WorkspaceError(
                f"the history index could not be written: {text}",
                hint="raise the limit of a file's size (ulimit -f), or make room on the disk",
            )
        return WorkspaceError(
            f"the history index could not be written: {text}",
            hint="the disk may be full or failing: make room or look after it, then try again",
        )
    # The second condition: SQLite tried a hundred times to start reading while others interfered.
    if "locked" in text or name == "SQLITE_PROTOCOL":
        return LockedError("another process is busy with this history", hint="try again")
    if "readonly" in text or "unable to open" in text:
        return WorkspaceError(
            f"the history index cannot be opened: {text}",
            hint="check the owner of .substrate-git and whether the disk is writable",
        )
    return damaged(text)


def damaged(why: str) -> DamagedStoreError:
    return DamagedStoreError(f"the history index cannot be read: {why}", hint=_REPAIR)


def file_id(path: Path) -> tuple[int, int] | None:
    """Identifies the file, to detect a replacement; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, *, only_there: bool = False) -> sqlite3.Connection:
    """Open the ledger, and create its tables on first use; on a read-only disk, read only.

    `only_there`: never create the file, even if it vanished a moment ago.
    """
    if not path.parent.is_dir():
        raise DamagedStoreError("the history index is gone", hint=_REPAIR)
    try:
        if read_only_ledger.cannot_be_written(path):
            return _for_reading(path)
        _refuse_without_inodes(path)  # SQLite would wait half a minute, then speak of a lock
        name = f"{path.as_uri()}?mode=rw" if only_there else path
        connection = _open_with_index(path, name)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
        _migrate(connection)
    except sqlite3.Error as error:
        raise _explained(path, translated(error)) from error
    except WorkspaceError as error:
        raise _explained(path, error) from error
    return connection


def _explained(path: Path, error: SubstrateError) -> SubstrateError:
    """Find the reason: SQLite says "unable to open database file" in every case."""
    if not isinstance(error, WorkspaceError) or isinstance(error, DiskFullError):
        return error
    if files.lacks_inodes(path):
        return _no_inodes(path)
    length = len(os.fsencode(path))
    if length > _LONGEST_PATH:
        return WorkspaceError(
            f"the path of the history is too long ({length} bytes): {path}",
            hint="move the project to a place with a shorter path:"
            f" SQLite takes {_LONGEST_PATH} bytes",
        )
    return error


def _no_inodes(path: Path) -> DiskFullError:
    reason, hint = files.NO_INODES
    return DiskFullError(f"{reason}: {path.parent}", hint=hint)


def _refuse_without_inodes(path: Path) -> None:
    """Opening the ledger takes two more files, unless another process has it open."""
    if not os.path.exists(f"{path}-shm") and files.lacks_inodes(path):
        raise _no_inodes(path)


def _open_with_index(path: Path, name: Path | str) -> sqlite3.Connection:
    """Open the ledger with a shared index of the log, or with one in memory on a full disk.

    Readers share the log's index in a file of 32 kB. If the disk has no room for that file, no
    other process can have it open either, so it is kept in memory: then the user can still query
    what fills the disk.
    """
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


def _for_reading(path: Path) -> sqlite3.Connection:
    if not read_only_ledger.has_log(path):
        return _with_missing_tables(_open(f"{path.as_uri()}?immutable=1"))
    return for_rehearsal(path)


def for_rehearsal(path: Path) -> sqlite3.Connection:
    """A copy in memory of a ledger that cannot be written; `PRAGMA query_only` protects it."""
    try:
        connection = read_only_ledger.in_memory(path, _open)
        _migrate(connection)
        connection.execute("PRAGMA query_only=1")
    except sqlite3.Error as error:
        raise translated(error) from error
    return connection


def _with_missing_tables(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Add empty tables, in memory, that a read-only ledger of an older version lacks."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    _refuse_newer(version)
    if 0 < version < SCHEMA_VERSION:
        connection.execute("PRAGMA temp_store=MEMORY")
        for number in range(version + 1, SCHEMA_VERSION + 1):
            text = _ADDED[number].replace("CREATE TABLE ", "CREATE TEMP TABLE ")
            for statement in text.replace("CREATE INDEX ", "CREATE INDEX temp.").split(";\n"):
                if statement.strip():
                    connection.execute(statement)
    return connection


def _refuse_newer(version: int) -> None:
    if version > SCHEMA_VERSION:
        raise RefusedError(
            f"this history was written by a newer Substrate (schema {version})",
            hint="upgrade Substrate; nothing was changed",
        )


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    _refuse_newer(version)
    _keep_a_log(connection)
    connection.execute("BEGIN EXCLUSIVE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number in range(version + 1, SCHEMA_VERSION + 1):
        for statement in (_TABLES if number == 1 else _ADDED[number]).split(";\n"):
            if statement.strip():
                connection.execute(statement)
    if 0 < version < 3:
        old_hold_texts.convert(connection)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Switch to WAL: with FULL, one append and one fdatasync per transaction. The file keeps it.

    Where WAL cannot work (network file systems), SQLite stays in another mode, which is as safe
    and only slower.

    If several processes open a new file at once, each of them reads it first, so SQLite refuses
    all but one immediately: waiting while holding a read lock could be a deadlock. So retry here.
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
