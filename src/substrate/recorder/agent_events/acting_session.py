"""The session and prompt that a coding agent's tool call belongs to."""

from __future__ import annotations

from typing import NamedTuple

from substrate.coding_agents import HookEvent
from substrate.history.record import AgentSession, Prompt, agent_sessions, prompts
from substrate.history.store import PROMPT_ID, Detail, HistoryStore

OBSERVED = "observed"


class Acting(NamedTuple):
    session_id: str
    prompt: Prompt | None
    model: str | None

    def detail(self, event: HookEvent, call_id: str) -> Detail:
        """What the entry of a tool call says about it."""
        out: Detail = {
            "recorded_by": OBSERVED,
            "tool": {"name": event.tool, "call_id": call_id or None},
            "cwd": event.cwd,
        }
        if self.prompt is not None:
            out[PROMPT_ID] = self.prompt.prompt_id
        if self.model:
            out["model"] = self.model
        if event.subagent:
            out["subagent"] = {"id": event.subagent, "type": event.subagent_type or None}
        return out


def acting(store: HistoryStore, event: HookEvent, began_ns: int) -> Acting:
    """Inside the lock. A prompt of which only the id is known is recorded without its text."""
    whose = AgentSession(event.agent, event.session, event.subagent)
    session_id = agent_sessions.ensure(store, whose, model=event.model or None)
    ledger = store.ledger
    prompt = agent_sessions.open_prompt(ledger, session_id, event.prompt)
    if event.prompt and (prompt is None or prompt.agent_prompt != event.prompt):
        owner = agent_sessions.parent_of(ledger, session_id) or session_id
        model = event.model or agent_sessions.model_of(ledger, session_id)
        with store.commit_point(durable=False):
            prompt = prompts.begin(
                ledger, owner, agent_prompt=event.prompt, text="", model=model or None,
                started_ns=began_ns,
            )  # fmt: skip
    model = event.model or (prompt.model if prompt else None)
    return Acting(session_id, prompt, model or agent_sessions.model_of(ledger, session_id))
