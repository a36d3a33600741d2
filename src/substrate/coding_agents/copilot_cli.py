"""GitHub Copilot CLI, from its documentation (hooks version 1): untested."""

from __future__ import annotations

from pathlib import Path

from substrate.coding_agents.agent import HOOK_TIMEOUT_S, Agent, Scope, Surroundings
from substrate.coding_agents.settings_edit import Edit, JsonEdit
from substrate.coding_agents.settings_json import Addition

EVENTS = (
    *("sessionStart", "userPromptSubmitted", "preToolUse", "postToolUse", "agentStop"),
    "sessionEnd",
)


class CopilotCli(Agent):
    """It reads every file in the project's ``.github/hooks``, and no file of the user's."""

    name = "copilot"
    title = "GitHub Copilot CLI"
    programs = ("copilot",)
    is_tested = False
    why_no_world = "Copilot CLI has no shell prefix, and its commands are not rewritten"

    def settings_directory(self, around: Surroundings) -> Path:
        return around.home / ".copilot"

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        if scope != "project":
            return ()
        hook = {
            "type": "command",
            "bash": self.hook_command(around, scope),
            "timeoutSec": HOOK_TIMEOUT_S,
        }
        additions = (
            Addition(("version",), 1),
            *(Addition(("hooks", event), hook, in_array=True) for event in EVENTS),
        )
        path = around.project / ".github" / "hooks" / "substrate.json"
        return (JsonEdit(path, additions, self.is_our_hook),)

    def why_not_scope(self, scope: Scope) -> str:
        return f"{self.title} reads hooks from the project only: --scope project"

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        return around.project / "AGENTS.md" if scope == "project" else None
