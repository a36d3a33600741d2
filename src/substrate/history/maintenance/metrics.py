"""How large history is, measured on each call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.history.store import WHOLE_COMMANDS, HistoryStore


class Metrics(NamedTuple):
    size_bytes: int
    trash_bytes: int
    commits: int
    commands: int
    checkpoints: int
    sessions: int
    last_compaction_ns: int | None


def measure(store: HistoryStore) -> Metrics:
    count = store.ledger.db.execute(
        "SELECT (SELECT count(*) FROM entries WHERE commit_oid IS NOT NULL"
        "          AND squashed_into IS NULL) AS commits,"
        f"       (SELECT count(*) FROM entries WHERE {WHOLE_COMMANDS}) AS commands,"
        "       (SELECT count(*) FROM checkpoints) AS checkpoints,"
        "       (SELECT count(*) FROM sessions) AS sessions"
    ).fetchone()
    last = store.ledger.meta("last_compaction_ns")
    return Metrics(
        size_bytes=disk_bytes(store.dir) - disk_bytes(store.trash_dir),
        trash_bytes=disk_bytes(store.trash_dir),
        commits=count["commits"],
        commands=count["commands"],
        checkpoints=count["checkpoints"],
        sessions=count["sessions"],
        last_compaction_ns=last if isinstance(last, int) else None,
    )


def git_bytes(store: HistoryStore) -> int:
    """The objects and refs."""
    return disk_bytes(store.git_dir)


def capped_bytes(store: HistoryStore) -> int:
    """What the disk cap covers: the objects and the ledger."""
    return git_bytes(store) + disk_bytes(store.dir / "index") - _size(store.stat_cache_file)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def disk_bytes(top: Path) -> int:
    """Bytes of all files below `top`; files that vanish during the walk are not counted."""
    total = 0
    stack = [os.fspath(top)]
    while stack:
        try:
            with os.scandir(stack.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
