"""Cursor, from its documentation (hooks version 1): untested."""

from __future__ import annotations

from pathlib import Path

from substrate.coding_agents.agent import Agent, Scope, Surroundings
from substrate.coding_agents.settings_edit import Edit, JsonEdit
from substrate.coding_agents.settings_json import Addition

EVENTS = (
    *("sessionStart", "beforeSubmitPrompt", "beforeShellExecution", "afterShellExecution"),
    *("afterFileEdit", "stop", "sessionEnd"),
)


class Cursor(Agent):
    """Settings in ``~/.cursor/hooks.json`` or the project's ``.cursor/hooks.json``."""

    name = "cursor"
    title = "Cursor"
    programs = ("cursor-agent", "cursor")
    is_tested = False
    why_no_world = "Cursor has no shell prefix, and its commands are not rewritten"

    def settings_directory(self, around: Surroundings) -> Path:
        return around.home / ".cursor"

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        if scope == "local":
            return ()
        directory = around.project / ".cursor" if scope == "project" else around.home / ".cursor"
        hook = {"command": self.hook_command(around, scope)}
        additions = (
            Addition(("version",), 1),
            *(Addition(("hooks", event), hook, in_array=True) for event in EVENTS),
        )
        return (JsonEdit(directory / "hooks.json", additions, self.is_our_hook),)

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        return around.project / "AGENTS.md" if scope == "project" else None
