"""The rows of a damaged store's ledger, read whole and written into a new one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history.store import Entry, Ledger

#: Copied as they are, except for the commits they name.
_TABLES = (
    *("reversals", "sessions", "checkpoints", "aliases", "line_authors"),
    *("agent_sessions", "prompts", "prompt_entries"),
)

Row = dict[str, object]


class Rows(NamedTuple):
    """What a ledger knew. `line`: its commits with their entries, oldest first."""

    line: list[tuple[bytes, Entry]]
    entries: list[Row]
    tables: dict[str, list[Row]]
    tags: dict[str, bytes]
    recovery_rows: list[Row]

    @property
    def recoveries(self) -> dict[str, bytes]:
        return {str(row["ref"]): _oid(row["commit_oid"]) for row in self.recovery_rows}

    def write(
        self,
        ledger: Ledger,
        moved: Mapping[bytes, bytes],
        stands_for: Mapping[bytes, bytes],
        kept_refs: Mapping[str, bytes],
    ) -> None:
        """Inside the commit point of the new, empty ledger."""
        for row in self.entries:
            _insert(ledger, "entries", _entry_row(row, moved))
        for table in _TABLES:
            for row in self.tables[table]:
                named = {k: stands_for.get(v) if _is_commit(k) else v for k, v in row.items()}  # type: ignore[call-overload]
                if table == "checkpoints" and named["commit_oid"] is None:
                    continue
                if table == "aliases" and named["present"] is None:
                    continue
                _insert(ledger, table, named)
        for old, new in stands_for.items():
            if old != new:
                _insert(ledger, "aliases", {"old": old, "present": new})
        for row in self.recovery_rows:
            if row["ref"] in kept_refs:
                _insert(ledger, "recoveries", row)
        for name, oid in self.tags.items():
            if oid in stands_for:
                ledger.set_ref(name, stands_for[oid])


def read(file: Path) -> Rows | None:
    """None if there is no ledger, nothing in it, or its entries cannot be read."""
    if not file.is_file():
        return None
    try:
        ledger = Ledger(file)
    except (SubstrateError, sqlite3.Error, OSError):
        return None
    try:
        entries = _table(ledger, "entries ORDER BY seq")
        line = [(e.commit, e) for e in reversed(ledger.live(committed=True)) if e.commit]
        refs = ledger.refs() if entries else {}
    except (SubstrateError, sqlite3.Error, ValueError):
        return None
    else:
        tags = {n: oid for n, oid in refs.items() if oid and n.startswith("refs/tags/")}
        tables = {name: _table_or_nothing(ledger, name) for name in _TABLES}
        recoveries = _table_or_nothing(ledger, "recoveries")
        return Rows(line, entries, tables, tags, recoveries) if line else None
    finally:
        ledger.close()


def _table(ledger: Ledger, name: str) -> list[Row]:
    return [dict(row) for row in ledger.db.execute(f"SELECT * FROM {name}")]


def _table_or_nothing(ledger: Ledger, name: str) -> list[Row]:
    try:
        return _table(ledger, name)
    except (SubstrateError, sqlite3.Error):
        return []


def _entry_row(row: Row, moved: Mapping[bytes, bytes]) -> Row:
    """An entry outside squashes follows its commit, or is marked as lost."""
    commit = row["commit_oid"]
    if commit is None or row["squashed_into"] is not None:
        return row
    new = moved.get(_oid(commit))
    if new is not None:
        return {**row, "commit_oid": new}
    detail = {**json.loads(str(row["detail"])), "lost": True}
    return {**row, "commit_oid": None, "added_bytes": 0, "detail": json.dumps(detail)}


def _is_commit(column: str) -> bool:
    return column in ("commit_oid", "start_commit", "closed_commit", "present")


def _oid(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _insert(ledger: Ledger, table: str, row: Mapping[str, object]) -> None:
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    ledger.db.execute(
        f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", tuple(row.values())
    )
