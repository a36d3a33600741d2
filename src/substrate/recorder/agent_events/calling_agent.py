"""The coding agent's session that runs a command, from the variables that the agent sets."""

from __future__ import annotations

from substrate.history.record import AgentSession
from substrate.system import Environment


def session_of(environment: Environment) -> AgentSession | None:
    """None if no coding agent runs the command. Gemini CLI names no session: its latest counts."""
    claude = environment.get("CLAUDE_CODE_SESSION_ID")
    if claude is not None:
        return AgentSession("claude-code", claude)
    codex = environment.get("CODEX_SESSION_ID")
    if codex is not None:
        return AgentSession("codex", codex, call_id=environment.get("CODEX_TOOL_CALL_ID") or "")
    if environment.get("GEMINI_CLI") is not None:
        return AgentSession("gemini-cli")
    return None
