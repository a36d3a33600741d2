"""Sessions of coding agents: each of theirs is one of ours; a sub-agent's is a child session."""

from __future__ import annotations

from typing import NamedTuple

from substrate.history.record import prompts, sessions
from substrate.history.record.prompts import Prompt
from substrate.history.store import PROMPT_ID, Detail, HistoryStore, Ledger
from substrate.system import clock, ids

#: How many entries may be recorded before the prompt that led to them.
_LOOK_BACK = 50


class AgentSession(NamedTuple):
    """A coding agent's own session, as it names it. Without an id: its most recent one here."""

    agent: str
    agent_session: str = ""
    #: The sub-agent's id, if a sub-agent acts.
    subagent: str = ""
    #: The agent's id of the tool call that runs the command.
    call_id: str = ""

    @property
    def key(self) -> str:
        return f"{self.agent_session}/{self.subagent}" if self.subagent else self.agent_session


def find(ledger: Ledger, whose: AgentSession) -> str | None:
    """Our session for it, if it is known."""
    if not whose.agent_session:
        row = ledger.db.execute(
            "SELECT session_id FROM agent_sessions WHERE agent = ? AND ended_ns IS NULL"
            " AND parent_id IS NULL ORDER BY active_ns DESC LIMIT 1",
            (whose.agent,),
        ).fetchone()
    else:
        row = ledger.db.execute(
            "SELECT session_id FROM agent_sessions WHERE agent = ? AND agent_session = ?",
            (whose.agent, whose.key),
        ).fetchone()
    return str(row["session_id"]) if row else None


def by_agent_id(ledger: Ledger, text: str) -> str | None:
    """Our session for an id that a coding agent printed; None if it is not exactly one."""
    rows = ledger.db.execute(
        "SELECT session_id FROM agent_sessions WHERE agent_session = ? LIMIT 2", (text,)
    ).fetchall()
    return str(rows[0]["session_id"]) if len(rows) == 1 else None


def for_command(store: HistoryStore, whose: str | AgentSession | None, agent_id: str | None) -> str:
    """The session of a new command: the named one, else its agent's, else the automatic one."""
    if not isinstance(whose, AgentSession):
        return sessions.for_recording(store, whose, agent_id)
    known = find(store.ledger, whose)
    if known is None and not whose.agent_session:
        return sessions.for_recording(store, None, agent_id)
    return known or ensure(store, whose, agent_id=agent_id or "")


def ensure(
    store: HistoryStore, whose: AgentSession, *, model: str | None = None, agent_id: str = ""
) -> str:
    """Our session for it, opened if it is new, reopened if it had ended. Inside the lock."""
    session_id = find(store.ledger, whose)
    parent_id = None
    if session_id is None and whose.subagent:
        parent_id = ensure(store, whose._replace(subagent=""), model=model, agent_id=agent_id)
    made = session_id or ids.new_id("s")
    if session_id is None:
        sessions.open_named(store, made, agent_id or whose.agent)
    with store.commit_point(durable=False) as ledger:
        if session_id is None:
            ledger.db.execute(
                "INSERT OR IGNORE INTO agent_sessions VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (whose.agent, whose.key or made, made, parent_id, model, clock.now_ns()),
            )
        ledger.db.execute(
            "UPDATE agent_sessions SET active_ns = ?, ended_ns = NULL, model = coalesce(?, model)"
            " WHERE session_id = ?",
            (clock.now_ns(), model, made),
        )
    return made


def end(ledger: Ledger, session_id: str) -> None:
    """Inside a transaction: the agent has ended it. Its prompts have ended, too."""
    ledger.db.execute(
        "UPDATE agent_sessions SET ended_ns = ? WHERE session_id = ? OR parent_id = ?",
        (clock.now_ns(), session_id, session_id),
    )
    prompts.end(ledger, session_id, clock.now_ns())


def adopt_entries(ledger: Ledger, prompt: Prompt) -> None:
    """Inside a transaction: the prompt led to entries of its session that name no prompt.

    They were recorded first, because the daemon was starting when the prompt was reported.
    """
    for session_id in with_children(ledger, prompt.session_id):
        for entry in ledger.live(session_id=session_id, limit=_LOOK_BACK):
            is_of_it = prompt.started_ns <= entry.ts_ns < (prompt.ended_ns or entry.ts_ns + 1)
            if is_of_it and entry.kind in ("command", "edit") and PROMPT_ID not in entry.detail:
                ledger.add_detail(entry, **{PROMPT_ID: prompt.prompt_id})


def model_of(ledger: Ledger, session_id: str) -> str | None:
    """The model that the agent named when the session began."""
    for one in (session_id, parent_of(ledger, session_id)):
        row = ledger.db.execute(
            "SELECT model FROM agent_sessions WHERE session_id = ? AND model IS NOT NULL", (one,)
        ).fetchone()
        if row is not None:
            return str(row["model"])
    return None


def parent_of(ledger: Ledger, session_id: str) -> str | None:
    """The session that started a sub-agent's; None for any other."""
    row = ledger.db.execute(
        "SELECT parent_id FROM agent_sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    return None if row is None or row["parent_id"] is None else str(row["parent_id"])


def is_agents(ledger: Ledger, session_id: str) -> bool:
    """Whether a coding agent, or a sub-agent of one, works in the session."""
    row = ledger.db.execute(
        "SELECT 1 FROM agent_sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    return row is not None


def with_children(ledger: Ledger, session_id: str) -> list[str]:
    """The session, and those of the sub-agents that it started."""
    rows = ledger.db.execute(
        "SELECT session_id FROM agent_sessions WHERE parent_id = ?", (session_id,)
    )
    return [session_id, *(str(row["session_id"]) for row in rows)]


def open_prompt(ledger: Ledger, session_id: str, agent_prompt: str = "") -> Prompt | None:
    """The prompt that the session works on: the one with the agent's id, else the open one.

    A sub-agent works on its parent's prompt.
    """
    for one in (session_id, parent_of(ledger, session_id)):
        if one is None:
            continue
        found = prompts.by_agent_id(ledger, one, agent_prompt) or prompts.open_one(ledger, one)
        if found is not None:
            return found
    return None


def about(ledger: Ledger, session_id: str, whose: str | AgentSession | None) -> Detail:
    """What a command's entry says about the prompt and the tool call that led to it."""
    if not isinstance(whose, AgentSession):
        return {}
    out: Detail = {}
    prompt = open_prompt(ledger, session_id)
    model = (prompt.model if prompt else None) or model_of(ledger, session_id)
    if prompt is not None:
        out[PROMPT_ID] = prompt.prompt_id
    if model:
        out["model"] = model
    if whose.call_id:
        out["tool"] = {"name": "Bash", "call_id": whose.call_id}
    return out
