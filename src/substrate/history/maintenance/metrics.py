"""How large history is, counted when asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.history.ledger import WHOLE_COMMANDS
from substrate.history.store import HistoryStore


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
    """The part that the disk cap is about: the git store."""
    return disk_bytes(store.git_dir)


def disk_bytes(top: Path) -> int:
    """Bytes of all files below `top`; what vanishes meanwhile counts as nothing."""
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
