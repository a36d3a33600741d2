"""A cache of facts by blob id, kept between commits: SQLite, zstd. It may be removed at any time.

The file's name contains the extractor's version, so that facts of an older version are never read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import zstandard

from substrate.graph.parse.blob_facts import Facts, decode_facts
from substrate.system.files import leaves_holes

#: Increase it whenever the same blob would give other facts, or the format of rows changes.
EXTRACTOR_VERSION = 4
_CHUNK = 500
#: Fast: for rows of a few kilobytes a higher level spends its time on making tables.
_LEVEL = -5
#: Several rows fit into a page: this writes a third less than SQLite's default of 4096.
_PAGE_BYTES = 16384
#: The exceptions of reading a damaged row.
#: A damaged row may claim more bytes than there is memory.
DAMAGED = (zstandard.ZstdError, msgspec.DecodeError, MemoryError)


class Cache:
    """``(blob id, name key)`` -> facts. Several processes may use one at the same time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._decompress = zstandard.ZstdDecompressor().decompress
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        wanted = self._directory / f"facts-v{EXTRACTOR_VERSION}.db"
        if not wanted.exists():
            for old in self._directory.glob("facts-v*"):
                old.unlink(missing_ok=True)
        elif leaves_holes(self._directory) and _has_log(wanted):
            self._remove(wanted)
        try:
            return _connect(wanted)
        except sqlite3.DatabaseError:
            pass
        try:
            self._remove(wanted)
            return _connect(wanted)
        except (sqlite3.DatabaseError, OSError):  # a full or read-only disk
            return _connect(Path(":memory:"))

    @staticmethod
    def _remove(database: Path) -> None:
        for suffix in ("", "-wal", "-shm"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything, after a damaged row."""
        self._db.close()
        self._remove(self._directory / f"facts-v{EXTRACTOR_VERSION}.db")
        self._db = self._open()

    def get_packed(self, wanted: Iterable[tuple[bytes, str]]) -> dict[bytes, bytes]:
        """The rows in the cache, by `row_key`, in stored form."""
        keys = list({row_key(oid, key) for oid, key in wanted})
        found: dict[bytes, bytes] = {}
        for at in range(0, len(keys), _CHUNK):
            part = keys[at : at + _CHUNK]
            marks = ",".join("?" * len(part))
            text = f"SELECT key, facts FROM facts WHERE key IN ({marks})"
            with suppress(sqlite3.DatabaseError):
                found.update(self._db.execute(text, part).fetchall())
        return found

    def get(self, oid: bytes, key: str) -> Facts | None:
        packed = self.get_packed([(oid, key)]).get(row_key(oid, key))
        if packed is None:
            return None
        try:
            return decode_facts(self._decompress(packed))
        except DAMAGED:
            return None

    def put_packed(self, rows: list[tuple[bytes, bytes]]) -> None:
        """Store rows made by `pack`, in one transaction. Failing to write is not an error."""
        if not rows:
            return
        with suppress(sqlite3.DatabaseError), self._db:
            self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", sorted(rows))

    def close(self) -> None:
        with suppress(sqlite3.DatabaseError):
            self._db.close()


def _connect(path: Path) -> sqlite3.Connection:
    is_new = not path.exists()
    db = sqlite3.connect(path, timeout=60.0)
    try:
        _prepare(db, path, is_new)
    except sqlite3.Error:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, is_new: bool) -> None:
    if is_new:
        # Do not wait for the disk to store an empty table; if it is lost, it is made again.
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    # No write-ahead log where its mapped index would kill the process on a full disk.
    db.execute(f"PRAGMA journal_mode = {'TRUNCATE' if leaves_holes(path.parent) else 'WAL'}")
    # Rows are too long for `WITHOUT ROWID`, which would use a separate page for each.
    db.execute("CREATE TABLE IF NOT EXISTS facts (key BLOB PRIMARY KEY, facts BLOB)")
    db.commit()
    db.execute("PRAGMA synchronous = NORMAL")


def _has_log(database: Path) -> bool:
    """Whether it has a write-ahead log (byte 18 of the file): opening it would map the index."""
    with database.open("rb") as file:
        return file.read(19)[18:] == b"\2"


def row_key(oid: bytes, key: str) -> bytes:
    return oid + key.encode()


class Packer:
    """Encoded facts -> the bytes of a row, and back. Not thread-safe."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


@cache
def packer() -> Packer:
    """The packer of this process: making one takes longer than packing a row."""
    return Packer()
