"""Rows of the timeline as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from substrate.coding_agents import typed
from substrate.errors import SubstrateError
from substrate.recorder import Entry, HistoryStore, Place, Prompt, Row, Timeline, Wanted, queries
from substrate.recorder.arrival import held_worlds
from substrate.system import clock

Document = dict[str, object]
MOST_ROWS = 500
_MOST_COMMAND = 2_000
#: Rows of what a person or program did outside, or took back: they have a lane of their own.
_OUTSIDE = ("external", "undo", "redo", "rollback", "restore")


def rows_document(
    place: Place, timeline: Timeline, wanted: Wanted, start: int, count: int
) -> Document:
    """The rows from index `start` on, and how many there are. A negative start: the last ones."""
    with place.existing_history() as store, store.ledger.reading():
        rows = timeline.rows(store, wanted)
        if start < 0:
            start = max(len(rows) + start, 0)
        part = rows[start : start + min(count, MOST_ROWS)]
        read = store.ledger.live_newest_first({row.pos for row in part})
        entries = {entry.command_id: entry for entry in read}
        prompts = queries.prompts_of(store, entries.values())
        waiting = queries.waiting_commands(store)
        documents = [
            _group(row, entries.get(row.command_id), prompts)
            if row.kind != "entry"
            else _entry(store, timeline, entries[row.command_id], prompts, waiting)
            for row in part
        ]
        return {"total": len(rows), "from": start, "rows": documents}


def _group(row: Row, first: Entry | None, prompts: Mapping[str, Prompt]) -> Document:
    prompt = prompts.get(first.command_id) if first else None
    of_prompt = prompt if prompt and prompt.prompt_id == row.row_id else None
    title = of_prompt.text if of_prompt else (typed(first.command) if first else "")
    at = of_prompt.started_ns if of_prompt else (first.ts_ns if first else 0)
    return {
        "row": row.kind,
        "id": row.row_id,
        "title": title[:_MOST_COMMAND],
        "count": row.members,
        "ts": clock.iso(at),
        "agent_id": first.agent_id if first else None,
        "session_id": first.session_id if first else None,
    }


def _entry(
    store: HistoryStore,
    timeline: Timeline,
    entry: Entry,
    prompts: Mapping[str, Prompt],
    waiting: Mapping[str, str],
) -> Document:
    try:
        counts = timeline.counts(store, entry)
    except SubstrateError:  # a damaged object must not hide the other rows
        counts = None
    prompt = prompts.get(entry.command_id)
    detail = entry.detail
    return {
        "row": "entry",
        "id": entry.command_id,
        "kind": entry.kind,
        "outside": entry.kind in _OUTSIDE,
        "command": typed(entry.command)[:_MOST_COMMAND],
        "of": _taken_back(store, entry),
        "exit": entry.exit,
        "duration_ms": entry.duration_ms,
        "ts": clock.iso(entry.ts_ns),
        "agent_id": entry.agent_id,
        "session_id": entry.session_id,
        "prompt_id": prompt.prompt_id if prompt else None,
        "files": entry.changed_files if entry.kind != "baseline" else 0,
        "additions": counts.additions if counts else None,
        "deletions": counts.deletions if counts else None,
        "deleted_files": counts.deleted_files if counts else None,
        "changed": entry.commit is not None and entry.kind != "baseline",
        "undone": b"" in store.ledger.reversed_paths(entry.seq),
        "held": entry.command_id in waiting,
        "conflict": "conflicts" in detail,
        "denied": _count(detail, "net_denied") + _count(detail, "fs_denied"),
        "network": _count(detail, "scopes_used"),
    }


def _taken_back(store: HistoryStore, entry: Entry) -> str | None:
    """Of an undo or redo of one command: that command."""
    if entry.kind not in ("undo", "redo"):
        return None
    behind = queries.commands_behind(store, [entry])
    return typed(behind[0].command)[:_MOST_COMMAND] if len(behind) == 1 else None


def _count(detail: Mapping[str, object], name: str) -> int:
    found = detail.get(name)
    return len(found) if isinstance(found, list) else 0


def now_document(place: Place) -> Document:
    """What runs now, and how many worlds wait for a decision."""
    worlds = held_worlds.list_worlds(place)
    running = [one for one in worlds if one.state == "running"]
    return {
        "running": [
            {"command": typed(one.command)[:_MOST_COMMAND], "agent_id": one.agent_id,
             "ts": clock.iso(one.started_ns)}
            for one in running
        ],
        "held": len(worlds) - len(running),
    }  # fmt: skip
