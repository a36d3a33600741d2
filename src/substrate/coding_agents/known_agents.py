"""The coding agents that `connect` knows."""

from __future__ import annotations

from substrate.coding_agents.agent import Agent
from substrate.coding_agents.claude_code import ClaudeCode
from substrate.coding_agents.codex import Codex
from substrate.coding_agents.copilot_cli import CopilotCli
from substrate.coding_agents.cursor import Cursor
from substrate.coding_agents.gemini_cli import GeminiCli
from substrate.coding_agents.opencode import OpenCode
from substrate.errors import NotFoundError

AGENTS: tuple[Agent, ...] = (
    *(ClaudeCode(), Codex(), GeminiCli()),
    *(Cursor(), CopilotCli(), OpenCode()),
)
#: Other names that users type.
_ALIASES = {"claude": "claude-code", "gemini": "gemini-cli", "copilot-cli": "copilot"}


def agent_named(name: str) -> Agent:
    """The agent with this name; `NotFoundError` lists the names there are."""
    wanted = _ALIASES.get(name, name)
    for agent in AGENTS:
        if agent.name == wanted:
            return agent
    raise NotFoundError(
        f"no coding agent is called {name!r}",
        hint=f"one of: {', '.join(agent.name for agent in AGENTS)};"
        f" for any other: substrate connect --shim {name}",
    )
