"""Sessions: which one a command belongs to, and how one begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history.store import HistoryStore, Ledger, messages
from substrate.system import clock, ids

_HOUR_NS = 3_600_000_000_000


class Session(NamedTuple):
    session_id: str
    agent_id: str | None
    started_ns: int
    active_ns: int
    closed_ns: int | None
    #: Whether commands of its agent that name no session go into it.
    automatic: bool
    start_commit: bytes | None
    closed_commit: bytes | None


_COLUMNS = (
    "session_id, agent_id, started_ns, active_ns, closed_ns, automatic, start_commit, closed_commit"
)


def find(ledger: Ledger, session_id: str) -> Session | None:
    row = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    return Session(*row) if row else None


def all_sessions(ledger: Ledger) -> list[Session]:
    """Oldest first, by last activity (in order of events, not by the clock)."""
    rows = ledger.db.execute(f"SELECT {_COLUMNS} FROM sessions ORDER BY active_order, session_id")
    return [Session(*row) for row in rows]


def latest(ledger: Ledger) -> Session | None:
    """The workspace's most recently active session, open or closed."""
    row = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM sessions ORDER BY active_order DESC, session_id DESC LIMIT 1"
    ).fetchone()
    return Session(*row) if row else None


def automatic_one(ledger: Ledger, agent_id: str | None) -> Session | None:
    """The open session that the agent's commands go into if they name none."""
    row = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE automatic AND closed_ns IS NULL AND agent_id IS ?"
        " ORDER BY active_order DESC LIMIT 1",
        (agent_id,),
    ).fetchone()
    return Session(*row) if row else None


def for_recording(store: HistoryStore, named: str | None, agent_id: str | None) -> str:
    """The session a new command belongs to: the named one, else the agent's open one, else new.

    Call it inside the lock. An automatic session that idled too long is closed on the way.
    """
    if named:
        if find(store.ledger, named) is None:
            from substrate.history.record import agent_sessions  # it imports this module

            named = agent_sessions.by_agent_id(store.ledger, named) or named
        _ensure(store, messages.checked_session_id(named), agent_id, automatic=False)
        return named
    session = automatic_one(store.ledger, agent_id)
    if session is not None:
        if not _is_over(store, session):
            return session.session_id
        close(store, session.session_id)
    session_id = ids.new_id("s")
    _ensure(store, session_id, agent_id, automatic=True)
    return session_id


def open_named(store: HistoryStore, session_id: str, agent_id: str | None) -> None:
    """Make a session that only calls which name it go into, unless it exists."""
    _ensure(store, session_id, agent_id, automatic=False)


def for_question(store: HistoryStore, named: str | None) -> Session:
    """The named session, otherwise the most recently active one."""
    if named:
        return resolve(store.ledger, named)
    session = latest(store.ledger)
    if session is None:
        raise NotFoundError(
            "no session has been recorded here", hint="run something first: substrate -c '…'"
        )
    return session


def open_one(store: HistoryStore, agent_id: str | None) -> Session | None:
    """The agent's most recently active open session, except one that was idle for too long."""
    return next((one for one in _open_ones(store) if one.agent_id == agent_id), None)


def _open_ones(store: HistoryStore) -> Iterator[Session]:
    rows = store.ledger.db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE closed_ns IS NULL"
        " ORDER BY active_order DESC, session_id DESC"
    )
    return (one for one in (Session(*row) for row in rows) if not _is_over(store, one))


def current(store: HistoryStore, named: str | None, agent_id: str | None) -> Session:
    """The named session, else the open one of this agent, or of the user.

    Raises `NotFoundError` if there is none; its hint names an open session of another agent.
    """
    found = resolve(store.ledger, named) if named else open_one(store, agent_id)
    if found is not None:
        return found
    others = next(_open_ones(store), None)
    if others is not None:
        raise NotFoundError(
            "no session of yours is open here",
            hint=f"{others.session_id} of {others.agent_id} is open: `substrate session list`;"
            " your next command, or `substrate session start`, opens one",
        )
    last = latest(store.ledger)
    over = f"{last.session_id} was the last; " if last else ""
    raise NotFoundError(
        "no session is open here",
        hint=f"{over}the next command, or `substrate session start`, opens one",
    )


def _is_over(store: HistoryStore, session: Session) -> bool:
    """Whether the next command would close it, because it was idle for too long."""
    idle_ns = store.own_days().age_of(session.active_ns)
    return session.automatic and idle_ns >= store.config.session_idle_hours * _HOUR_NS


def resolve(ledger: Ledger, prefix: str) -> Session:
    """A session by its id, a unique prefix of it, or its coding agent's own id."""
    from substrate.history.query import one_of  # `query.resolve_id` imports this module
    from substrate.history.record import agent_sessions  # it imports this module

    exact = find(ledger, prefix) or find(ledger, agent_sessions.by_agent_id(ledger, prefix) or "")
    if exact is not None:
        return exact
    rows = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE session_id >= ? AND session_id < ? LIMIT 9",
        (prefix, prefix + "\U0010ffff"),
    ).fetchall()
    found = {row["session_id"]: Session(*row) for row in rows}
    return found[one_of("session", prefix, list(found))]


def touch(ledger: Ledger, session_id: str, *, reopen: bool = True) -> None:
    """Note activity. A new command opens a closed session again; an undo or rollback does not."""
    ledger.db.execute(
        "UPDATE sessions SET active_ns = ?, closed_ns = CASE ? WHEN 1 THEN NULL ELSE closed_ns END,"
        " active_order = (SELECT coalesce(max(active_order), 0) + 1 FROM sessions)"
        " WHERE session_id = ?",
        (clock.now_ns(), int(reopen), session_id),
    )


def whole(ledger: Ledger, session_id: str, verb: str = "undo") -> Session:
    """The session with exactly this id. No prefix: the command affects all of its work.

    `verb`: what the user typed in front of the id, for the hint.
    """
    found = find(ledger, session_id)
    if found is not None:
        return found
    rows = ledger.db.execute(
        "SELECT session_id FROM sessions WHERE session_id >= ? AND session_id < ?"
        " ORDER BY active_order DESC LIMIT 9",
        (session_id, session_id + "\U0010ffff"),
    ).fetchall()
    names = [row["session_id"] for row in rows]
    if not names:
        raise NotFoundError(
            f"no session {session_id!r}", hint="`substrate session list` lists them"
        )
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    raise RefusedError(
        f"nothing was changed: {session_id!r} is only the beginning of a session's id: {shown}",
        hint="a whole session is taken back by its full id only:"
        f" `substrate {verb} {names[0]}`; one command: `substrate undo` or `substrate undo c-…`",
    )


def begin_at(ledger: Ledger, commit: bytes) -> None:
    """Set the start commit of sessions that were opened before there was a baseline."""
    ledger.db.execute("UPDATE sessions SET start_commit = ? WHERE start_commit IS NULL", (commit,))


def start(store: HistoryStore, named: str | None, agent_id: str | None) -> Session:
    """Begin a session, or reopen a named one: the agent's commands now go into it.

    The agent's previous session, if any, is closed first.
    """
    session_id = messages.checked_session_id(named) if named else ids.new_id("s")
    for session in all_sessions(store.ledger):
        mine = session.automatic and session.closed_ns is None and session.agent_id == agent_id
        if mine and session.session_id != session_id:
            close(store, session.session_id)
    _ensure(store, session_id, agent_id, automatic=True)
    with store.commit_point() as ledger:
        ledger.db.execute(
            "UPDATE sessions SET automatic = 1, agent_id = ? WHERE session_id = ?",
            (agent_id, session_id),
        )
        touch(ledger, session_id)
    found = find(store.ledger, session_id)
    assert found is not None
    return found


def close(store: HistoryStore, session_id: str) -> Session:
    """End a session, and tag the present tip as the state at its end."""
    tip = store.tip_commit
    with store.commit_point() as ledger:
        ledger.db.execute(
            "UPDATE sessions SET closed_ns = ?, closed_commit = ? WHERE session_id = ?",
            (clock.now_ns(), tip, session_id),
        )
        if tip is not None:
            ledger.set_ref(messages.session_closed_tag(session_id), tip)
    found = find(store.ledger, session_id)
    assert found is not None
    return found


def _ensure(store: HistoryStore, session_id: str, agent_id: str | None, *, automatic: bool) -> None:
    if find(store.ledger, session_id) is not None:
        return
    now = clock.now_ns()
    with store.commit_point() as ledger:
        ledger.db.execute(
            "INSERT INTO sessions (session_id, agent_id, started_ns, active_ns, active_order,"
            " automatic, start_commit)"
            " SELECT ?, ?, ?, ?, coalesce(max(active_order), 0) + 1, ?, ? FROM sessions",
            (session_id, agent_id, now, now, int(automatic), store.tip_commit),
        )
