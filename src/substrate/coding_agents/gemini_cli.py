"""Gemini CLI: hooks observe its commands and report its edits and prompts.

Its commands are not rewritten: docs/decisions/0050-commands-are-not-rewritten.md.
"""

from __future__ import annotations

from pathlib import Path

from substrate.coding_agents.agent import HOOK_TIMEOUT_S, Agent, Scope, Surroundings
from substrate.coding_agents.settings_edit import Edit, JsonEdit

TOOLS = "run_shell_command|write_file|replace"
EVENTS = {
    "SessionStart": "",
    "BeforeAgent": "",
    "BeforeTool": TOOLS,
    "AfterTool": TOOLS,
    "AfterAgent": "",
    "SessionEnd": "",
}


class GeminiCli(Agent):
    """Settings in ``~/.gemini``."""

    name = "gemini-cli"
    title = "Gemini CLI"
    programs = ("gemini",)
    why_no_world = (
        "Gemini CLI's policies would see a rewritten command: a denied command then runs (measured)"
    )

    def settings_directory(self, around: Surroundings) -> Path:
        return around.home / ".gemini"

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        if scope == "local":
            return ()
        directory = self.settings_directory(around)
        if scope == "project":
            directory = around.project / ".gemini"
        timeout_ms = HOOK_TIMEOUT_S * 1000
        additions = self.command_hooks(around, scope, EVENTS, timeout_ms)
        return (JsonEdit(directory / "settings.json", additions, self.is_our_hook),)

    def mcp_edit(self, around: Surroundings, scope: Scope) -> Edit | None:
        edits = self.edits(around, scope)
        return self.json_server(edits[0].path, around, scope) if edits else None

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        if scope == "user":
            return self.settings_directory(around) / "GEMINI.md"
        return around.project / "GEMINI.md" if scope == "project" else None
