"""Prompts: what a user asked a coding agent for, and the entries that followed from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from substrate.errors import NotFoundError
from substrate.history.store import Ledger
from substrate.system import ids

_COLUMNS = "prompt_id, session_id, agent_prompt, text, model, started_ns, ended_ns"
#: How many values one SQL statement lists at most.
_AT_ONCE = 500


class Prompt(NamedTuple):
    prompt_id: str
    session_id: str
    #: The coding agent's own id of it; empty if it has none.
    agent_prompt: str
    #: Redacted; empty if only its calls were seen.
    text: str
    model: str | None
    started_ns: int
    #: None: the agent is still answering, or its end was not reported.
    ended_ns: int | None


def find(ledger: Ledger, prompt_id: str) -> Prompt | None:
    return _one(ledger, "prompt_id = ?", (prompt_id,))


def prefixed(ledger: Ledger, prefix: str, limit: int = 9) -> list[Prompt]:
    where = "prompt_id >= ? AND prompt_id < ? ORDER BY prompt_id LIMIT ?"
    return _many(ledger, where, (prefix, prefix + "\U0010ffff", limit))


def resolve(ledger: Ledger, text: str) -> Prompt:
    """A prompt by its id, a unique prefix of it, or the coding agent's own id."""
    from substrate.history.query import one_of  # `query.resolve_id` imports this module

    exact = find(ledger, text) or _one(
        ledger, "agent_prompt = ? AND agent_prompt <> '' ORDER BY started_ns DESC", (text,)
    )
    if exact is not None:
        return exact
    found = {prompt.prompt_id: prompt for prompt in (prefixed(ledger, text) if text else [])}
    return found[one_of("prompt", text, list(found))]


def latest(ledger: Ledger, session_ids: Iterable[str] = ()) -> Prompt:
    """The newest prompt, of these sessions or of all."""
    named = tuple(session_ids)
    marks = ", ".join("?" * len(named))
    where = f"session_id IN ({marks})" if named else "1"
    found = _one(ledger, f"{where} ORDER BY started_ns DESC, prompt_id DESC", named)
    if found is None:
        raise NotFoundError(
            "no prompt is recorded here",
            hint="a coding agent reports its prompts once it is connected; `substrate log` lists"
            " what else was recorded",
        )
    return found


def of_sessions(ledger: Ledger, session_ids: Iterable[str]) -> list[Prompt]:
    """The prompts of these sessions, oldest first."""
    named = tuple(session_ids)
    marks = ", ".join("?" * len(named))
    return _many(ledger, f"session_id IN ({marks}) ORDER BY started_ns, prompt_id", named)


def open_one(ledger: Ledger, session_id: str) -> Prompt | None:
    """The session's newest prompt whose end was not reported."""
    where = "session_id = ? AND ended_ns IS NULL ORDER BY started_ns DESC, prompt_id DESC"
    return _one(ledger, where, (session_id,))


def by_agent_id(ledger: Ledger, session_id: str, agent_prompt: str) -> Prompt | None:
    if not agent_prompt:
        return None
    where = "session_id = ? AND agent_prompt = ? ORDER BY started_ns DESC"
    return _one(ledger, where, (session_id, agent_prompt))


def begin(
    ledger: Ledger,
    session_id: str,
    *,
    agent_prompt: str,
    text: str,
    model: str | None,
    started_ns: int,
) -> Prompt:
    """Inside a transaction: a prompt was sent at `started_ns`. Earlier ones have ended by then.

    Its report may come after those of its calls, and after that of the next prompt.
    """
    known = by_agent_id(ledger, session_id, agent_prompt)
    if known is not None:  # a call of it was reported first
        new = known._replace(
            # Claude Code reports the end of a background task under the prompt that started it.
            text=known.text or text,
            model=model or known.model,
            started_ns=min(started_ns, known.started_ns),
        )
        ledger.db.execute(
            "UPDATE prompts SET text = ?, model = ?, started_ns = ? WHERE prompt_id = ?",
            (new.text, new.model, new.started_ns, new.prompt_id),
        )
        return new
    end(ledger, session_id, started_ns)
    later = _one(
        ledger, "session_id = ? AND started_ns > ? ORDER BY started_ns", (session_id, started_ns)
    )
    new = Prompt(
        ids.new_id("p"), session_id, agent_prompt, text, model, started_ns,
        later.started_ns if later else None,
    )  # fmt: skip
    ledger.db.execute(f"INSERT INTO prompts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", new)
    return new


def end(ledger: Ledger, session_id: str, at_ns: int) -> None:
    """Inside a transaction: what was asked before `at_ns` was answered by then."""
    ledger.db.execute(
        "UPDATE prompts SET ended_ns = ?1"
        " WHERE session_id = ?2 AND ended_ns IS NULL AND started_ns <= ?1",
        (at_ns, session_id),
    )


def of_commands(ledger: Ledger, command_ids: Iterable[str]) -> dict[str, Prompt]:
    """Command id → the prompt that led to it, for those that have one."""
    out: dict[str, Prompt] = {}
    wanted = sorted(set(command_ids))
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(some))
        rows = ledger.db.execute(
            f"SELECT command_id, prompts.* FROM prompt_entries JOIN prompts USING (prompt_id)"
            f" WHERE command_id IN ({marks})",
            some,
        )
        out.update((row["command_id"], _prompt(row)) for row in rows)
    return out


def _one(ledger: Ledger, where: str, values: tuple[object, ...]) -> Prompt | None:
    return next(iter(_many(ledger, f"{where} LIMIT 1", values)), None)


def _many(ledger: Ledger, where: str, values: tuple[object, ...]) -> list[Prompt]:
    rows = ledger.db.execute(f"SELECT {_COLUMNS} FROM prompts WHERE {where}", values)
    return [_prompt(row) for row in rows]


def _prompt(row: sqlite3.Row) -> Prompt:
    return Prompt(*(row[name] for name in Prompt._fields))
