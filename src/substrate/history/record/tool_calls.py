"""Tool calls that a coding agent has announced: their changes are the agent's, not outside edits.

From the call before a tool runs until the call after it, the watcher leaves the named paths alone:
the report of the tool says whose the change is. A shell call names no paths: it may change any.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from substrate.history.store import Ledger
from substrate.model import RelPath, ancestors
from substrate.system import clock

#: An announcement is believed for this long: the call may have been denied, or its agent killed.
_EDIT_NS = 60 * 10**9
_SHELL_NS = 15 * 60 * 10**9


class ToolCall(NamedTuple):
    session_id: str
    #: The agent's own id of the call; one of ours if it has none.
    call_id: str
    tool: str
    #: The files that it names: of a shell call, those that were read before it.
    paths: tuple[RelPath, ...]
    is_shell: bool
    started_ns: int
    #: The newest entry when it was announced.
    after_seq: int


def announce(
    ledger: Ledger,
    session_id: str,
    call_id: str,
    tool: str,
    paths: Iterable[RelPath],
    *,
    started_ns: int,
    is_shell: bool = False,
) -> None:
    """Inside a transaction."""
    row = ledger.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
    named = json.dumps([os.fsdecode(path) for path in paths])
    ledger.db.execute(
        "INSERT OR REPLACE INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?)",
        (session_id, call_id, tool, named, int(is_shell), started_ns, row[0] if row else 0),
    )


def take(ledger: Ledger, session_id: str, call_id: str, tool: str) -> ToolCall | None:
    """Inside a transaction: remove the announcement and return it.

    Without an id the oldest call of this tool is meant: such agents report calls in order.
    """
    where, values = "session_id = ? AND call_id = ?", (session_id, call_id)
    if not call_id:
        where, values = "session_id = ? AND tool = ? ORDER BY started_ns", (session_id, tool)
    row = ledger.db.execute(f"SELECT * FROM tool_calls WHERE {where} LIMIT 1", values).fetchone()
    if row is None:
        return None
    found = _call(row)
    ledger.db.execute(
        "DELETE FROM tool_calls WHERE session_id = ? AND call_id = ?", (session_id, found.call_id)
    )
    return found


def is_announced(ledger: Ledger, session_id: str, call_id: str, tool: str) -> bool:
    """Whether `take` would find it."""
    where, value = ("call_id = ?", call_id) if call_id else ("tool = ?", tool)
    row = ledger.db.execute(
        f"SELECT 1 FROM tool_calls WHERE session_id = ? AND {where}", (session_id, value)
    ).fetchone()
    return row is not None


def paths_of(ledger: Ledger, session_ids: Iterable[str]) -> list[RelPath]:
    """The files that announced calls of these sessions name."""
    found: list[RelPath] = []
    for session_id in session_ids:
        rows = ledger.db.execute("SELECT * FROM tool_calls WHERE session_id = ?", (session_id,))
        found += [path for row in rows for path in _call(row).paths]
    return found


def drop(ledger: Ledger, session_id: str) -> None:
    """Inside a transaction: none of the session's calls runs any more."""
    ledger.db.execute("DELETE FROM tool_calls WHERE session_id = ?", (session_id,))


def running(ledger: Ledger) -> list[ToolCall]:
    """The announced calls that may still be running, oldest first."""
    rows = ledger.db.execute("SELECT * FROM tool_calls ORDER BY started_ns")
    now = clock.now_ns()
    found = [_call(row) for row in rows]
    return [one for one in found if now - one.started_ns < _age_limit(one)]


class Expected:
    """The paths that these calls may be changing right now: ``path in Expected(calls)``."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        found = list(calls)
        self._is_any = any(one.is_shell for one in found)
        self._named = {path for one in found for path in one.paths}
        self._above = {above for path in self._named for above in ancestors(path)}

    def __contains__(self, path: RelPath) -> bool:
        if self._is_any or path in self._named or path in self._above:
            return True
        return not self._named.isdisjoint(ancestors(path))


def _age_limit(call: ToolCall) -> int:
    return _SHELL_NS if call.is_shell else _EDIT_NS


def _call(row: sqlite3.Row) -> ToolCall:
    paths = tuple(RelPath(os.fsencode(path)) for path in json.loads(row["paths"]))
    return ToolCall(
        row["session_id"], row["call_id"], row["tool"], paths, bool(row["is_shell"]),
        row["started_ns"], row["after_seq"],
    )  # fmt: skip
