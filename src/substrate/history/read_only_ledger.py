"""A ledger that cannot be written: on a read-only mount, or without write permission.

no log beside the file      SQLite reads the file itself, as one that never changes
a log with content          SQLite would have to write: read a copy of both in memory
a dry run                   needs a ledger that it can write to and drop: a copy in memory
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from substrate.errors import LockedError
from substrate.system.files import remove_tree

Opener = Callable[[Path | str], sqlite3.Connection]
#: Attempts to copy a file and its log while another process writes to them through another mount.
_TRIES = 20


def cannot_be_written(path: Path) -> bool:
    """Whether the ledger exists and this process cannot write to its directory."""
    return path.exists() and not os.access(path.parent, os.W_OK)


def has_log(path: Path) -> bool:
    wal = _log_of(path)
    return wal.exists() and wal.stat().st_size > 0


def in_memory(path: Path, opener: Opener) -> sqlite3.Connection:
    """A copy of the whole ledger, its log included."""
    place = Path(tempfile.mkdtemp(prefix="substrate-ledger-"))
    try:
        copied = place / path.name
        _copy_both(path, copied)
        source = opener(copied)
        try:
            memory = opener(":memory:")
            source.backup(memory)
        finally:
            source.close()
        return memory
    finally:
        remove_tree(place)


def _copy_both(path: Path, target: Path) -> None:
    """Copy both as they were at one moment: if a size or time changes, copy again."""
    for _ in range(_TRIES):
        before = _stamps(path)
        for one, copied in ((path, target), (_log_of(path), _log_of(target))):
            copied.unlink(missing_ok=True)
            if one.exists():
                shutil.copyfile(one, copied)
        if _stamps(path) == before:
            return
    raise LockedError("another process is busy with this history", hint="try again")


def _stamps(path: Path) -> list[tuple[int, int, int] | None]:
    out: list[tuple[int, int, int] | None] = []
    for one in (path, _log_of(path)):
        at = one.stat() if one.exists() else None
        out.append(at and (at.st_ino, at.st_size, at.st_mtime_ns))
    return out


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")
