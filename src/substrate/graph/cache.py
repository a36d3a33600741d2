"""Facts by blob id, kept between commits: SQLite, zstd. It may be removed at any time.

The file's name carries the extractor's version, so that facts of an older one are never read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import zstandard

from substrate.graph.facts import Facts, decode_facts

#: Raised whenever the same blob would give other facts.
EXTRACTOR_VERSION = 2
_CHUNK = 500


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
        try:
            return _connect(wanted)
        except sqlite3.DatabaseError:
            # Only a cache: what cannot be read is made again.
            for suffix in ("", "-wal", "-shm"):
                wanted.with_name(wanted.name + suffix).unlink(missing_ok=True)
            return _connect(wanted)

    def get_packed(self, wanted: Iterable[tuple[bytes, str]]) -> dict[bytes, bytes]:
        """The rows that are there, by `row_key`, as they were stored."""
        keys = list({row_key(oid, key) for oid, key in wanted})
        found: dict[bytes, bytes] = {}
        for at in range(0, len(keys), _CHUNK):
            part = keys[at : at + _CHUNK]
            marks = ",".join("?" * len(part))
            rows = self._db.execute(f"SELECT key, facts FROM facts WHERE key IN ({marks})", part)
            found.update(rows.fetchall())
        return found

    def get(self, oid: bytes, key: str) -> Facts | None:
        row = self._db.execute(
            "SELECT facts FROM facts WHERE key = ?", (row_key(oid, key),)
        ).fetchone()
        return decode_facts(self._decompress(row[0])) if row else None

    def put_packed(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Store rows made by `pack`, in one transaction."""
        with self._db:
            self._db.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", sorted(rows))

    def close(self) -> None:
        self._db.close()


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=60.0)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE IF NOT EXISTS facts (key BLOB PRIMARY KEY, facts BLOB) WITHOUT ROWID")
    db.commit()
    return db


def row_key(oid: bytes, key: str) -> bytes:
    return oid + key.encode()


class Packer:
    """Encoded facts -> the bytes of a row, and back; one per process."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1).compress
        self.decompress = zstandard.ZstdDecompressor().decompress
