"""The rows of the timeline: prompts and what followed from them, oldest first.

A row has an index, so that a page can ask for any part of a long history. The index is built from
a few columns of the ledger; details are read for the rows that are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from substrate.history.store import Entry, HistoryStore
from substrate.system.process import uncollected

#: More changed files than this are not counted line by line for a row.
_MOST_COUNTED_FILES = 300
#: Rows are kept for this many different filters.
_MOST_FILTERS = 16
#: Entries that count as commands of a group.
_COMMANDS = ("command", "edit", "squash")
#: What `detail` holds if a command used the network.
_NETWORK = ("scopes_used", "net_denied")


class Wanted(NamedTuple):
    """Which entries have rows; groups without rows have none either."""

    changed: bool = False
    failed: bool = False
    network: bool = False
    agent: str = ""
    #: Only entries whose command contains it.
    text: str = ""


class Row(NamedTuple):
    """One row: a group (a prompt, or a session without prompts), or an entry."""

    #: ``prompt``, ``session`` or ``entry``.
    kind: str
    #: The id of the prompt, session or command.
    row_id: str
    #: The entry's position and id; of a group, those of its first entry.
    pos: int
    command_id: str
    #: How many commands and edits the group has here.
    members: int = 0


class _State(NamedTuple):
    """Differs after anything that changes rows was recorded."""

    last_seq: int
    of_prompts: int
    squashed: int


class Counts(NamedTuple):
    additions: int
    deletions: int
    deleted_files: int


class _Known(NamedTuple):
    """The rows of one filter, and up to where they were read."""

    rows: list[Row]
    state: _State
    last_pos: int
    #: Where the last group begins, and its name.
    start: int
    group: str


class Timeline:
    """The rows of one history; kept between calls, extended when something was recorded."""

    def __init__(self) -> None:
        self._known: dict[Wanted, _Known] = {}
        self._counts: dict[bytes, Counts | None] = {}

    def rows(self, store: HistoryStore, wanted: Wanted) -> list[Row]:
        state, known = _state(store), self._known.get(wanted)
        if known is None or known.state != state:
            if len(self._known) > _MOST_FILTERS:
                self._known.clear()
            with uncollected():  # a few values without cycles for each row
                known = self._known[wanted] = _read(store, wanted, state, known)
        return known.rows

    def counts(self, store: HistoryStore, entry: Entry) -> Counts | None:
        """Lines added and deleted, and files deleted; None if there are too many to count."""
        from substrate.recorder import queries

        if entry.commit is None or entry.kind == "baseline":
            return Counts(0, 0, 0)
        if entry.commit not in self._counts:
            found = None
            if entry.changed_files <= _MOST_COUNTED_FILES:
                files = queries.described_changes(store, entry)
                found = Counts(
                    sum(one.additions for one in files),
                    sum(one.deletions for one in files),
                    sum(one.change == "deleted" for one in files),
                )
            self._counts[entry.commit] = found
        return self._counts[entry.commit]


def _state(store: HistoryStore) -> _State:
    row = store.ledger.db.execute(
        "SELECT coalesce((SELECT max(seq) FROM entries), 0), (SELECT count(*) FROM prompt_entries),"
        " (SELECT count(*) FROM entries WHERE squashed_into IS NOT NULL)"
    ).fetchone()
    return _State(*row)


def _read(store: HistoryStore, wanted: Wanted, state: _State, known: _Known | None) -> _Known:
    """Continue after what is known, if the line has only grown at its end; otherwise read all."""
    if known is not None and state[1:] == known.state[1:]:
        new = _listed(store, wanted, known.state.last_seq)
        if all(one[0] > known.last_pos for one in new):
            return _extended(known, new, {}, state)
    prompts = dict(_plain(store, "SELECT command_id, prompt_id FROM prompt_entries"))
    empty = _Known([], state, -1, 0, "")
    return _extended(empty, _listed(store, wanted, 0), prompts, state)


def _plain(
    store: HistoryStore, text: str, values: tuple[object, ...] = ()
) -> list[tuple[Any, ...]]:
    """Rows as tuples: of a hundred thousand, a few times faster than by name."""
    cursor = store.ledger.db.cursor()
    cursor.row_factory = None
    return cursor.execute(text, values).fetchall()


def _listed(store: HistoryStore, wanted: Wanted, after: int) -> list[tuple[Any, ...]]:
    """Position, id, session and kind of the entries that are wanted, in order."""
    where, values = ["squashed_into IS NULL", "seq > ?"], list[object]([after])
    if wanted.changed:
        where.append("commit_oid IS NOT NULL")
    if wanted.failed:
        where.append("exit IS NOT NULL AND exit <> 0")
    if wanted.network:
        where.append("(" + " OR ".join(f"instr(detail, '\"{name}\"')" for name in _NETWORK) + ")")
    if wanted.agent:
        where.append("agent_id = ?")
        values.append(wanted.agent)
    if wanted.text:
        where.append("instr(lower(command), lower(?)) > 0")
        values.append(wanted.text)
    text = "SELECT pos, command_id, session_id, kind FROM entries WHERE "
    return _plain(store, f"{text}{' AND '.join(where)} ORDER BY pos, seq", tuple(values))


def _extended(
    known: _Known, new: list[tuple[Any, ...]], prompts: Mapping[str, str], state: _State
) -> _Known:
    """Put a row for a group in front of its entries; entries of no session end no group."""
    rows, start, group = list(known.rows), known.start, known.group
    members = rows[start].members if group else 0
    pos = known.last_pos
    for pos, command_id, session_id, kind in new:
        prompt_id = prompts.get(command_id)
        named = prompt_id or session_id or ""
        if named and named != group:
            if group:
                rows[start] = rows[start]._replace(members=members)
            group, start, members = named, len(rows), 0
            rows.append(Row("prompt" if prompt_id else "session", named, pos, command_id))
        if named and kind in _COMMANDS:
            members += 1
        rows.append(Row("entry", command_id, pos, command_id))
    if group:
        rows[start] = rows[start]._replace(members=members)
    return _Known(rows, state, pos, start, group)
