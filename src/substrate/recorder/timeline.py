"""The rows of the timeline: prompts and what followed from them, oldest first.

A row has an index, so that a page can ask for any part of a long history. The index is built from
a few columns of the ledger; details are read for the rows that are asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from substrate.history.store import Entry, HistoryStore

#: More changed files than this are not counted line by line for a row.
_MOST_COUNTED_FILES = 300
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


class Counts(NamedTuple):
    additions: int
    deletions: int
    deleted_files: int


class Timeline:
    """The rows of one history; kept between calls, and rebuilt after something was recorded."""

    def __init__(self) -> None:
        self._rows: dict[Wanted, tuple[object, list[Row]]] = {}
        self._counts: dict[bytes, Counts | None] = {}

    def rows(self, store: HistoryStore, wanted: Wanted) -> list[Row]:
        state = _state(store)
        known = self._rows.get(wanted)
        if known is None or known[0] != state:
            if len(self._rows) > 16:
                self._rows.clear()
            known = state, _grouped(_matching(store, wanted))
            self._rows[wanted] = known
        return known[1]

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


def _state(store: HistoryStore) -> object:
    """Differs after anything that changes rows was recorded."""
    return tuple(
        store.ledger.db.execute(
            "SELECT (SELECT max(seq) FROM entries), (SELECT count(*) FROM prompt_entries),"
            " (SELECT count(*) FROM entries WHERE squashed_into IS NOT NULL),"
            " (SELECT count(*) FROM reversals)"
        ).fetchone()
    )


class _Listed(NamedTuple):
    pos: int
    command_id: str
    session_id: str | None
    kind: str
    prompt_id: str | None


def _matching(store: HistoryStore, wanted: Wanted) -> list[_Listed]:
    where, values = ["e.squashed_into IS NULL"], list[object]()
    if wanted.changed:
        where.append("e.commit_oid IS NOT NULL")
    if wanted.failed:
        where.append("e.exit IS NOT NULL AND e.exit <> 0")
    if wanted.network:
        where.append("(" + " OR ".join(f"e.detail LIKE '%\"{name}\"%'" for name in _NETWORK) + ")")
    if wanted.agent:
        where.append("e.agent_id = ?")
        values.append(wanted.agent)
    if wanted.text:
        where.append("instr(lower(e.command), lower(?)) > 0")
        values.append(wanted.text)
    found = store.ledger.db.execute(
        "SELECT e.pos, e.command_id, e.session_id, e.kind, p.prompt_id FROM entries e"
        " LEFT JOIN prompt_entries p ON p.command_id = e.command_id"
        f" WHERE {' AND '.join(where)} ORDER BY e.pos, e.seq",
        values,
    )
    return [_Listed(*row) for row in found]


def _grouped(listed: list[_Listed]) -> list[Row]:
    """Put a row for the group in front of its entries; entries of no session end no group."""
    out: list[Row] = []
    group, start = "", 0
    for one in listed:
        named = one.prompt_id or one.session_id or ""
        if named and named != group:
            group, start = named, len(out)
            out.append(
                Row("prompt" if one.prompt_id else "session", named, one.pos, one.command_id)
            )
        if named and one.kind in _COMMANDS:
            out[start] = out[start]._replace(members=out[start].members + 1)
        out.append(Row("entry", one.command_id, one.pos, one.command_id))
    return out
