"""Claude Code: its shell commands get a world by a prefix; hooks report edits and prompts.

`CLAUDE_CODE_SHELL_PREFIX` leaves permission rules as they are, because the rules see the command
without it. A rewrite by hook would not: docs/decisions/0050-commands-are-not-rewritten.md.
"""

from __future__ import annotations

from pathlib import Path

from substrate.coding_agents.agent import (
    HOOK_TIMEOUT_S,
    SHELL_SCRIPT,
    Agent,
    Records,
    Scope,
    Surroundings,
)
from substrate.coding_agents.mcp_registration import (
    SERVER,
    SERVERS,
    ClaudeServersEdit,
    is_our_server,
)
from substrate.coding_agents.settings_edit import Edit, JsonEdit
from substrate.coding_agents.settings_json import Addition

PREFIX = ("env", "CLAUDE_CODE_SHELL_PREFIX")
#: The tools with which Claude Code changes files itself.
EDIT_TOOLS = "Edit|Write|MultiEdit|NotebookEdit"
#: No hook for Bash: the prefix reports these calls, and an empty pair of hooks costs 8 to 24 ms.
EVENTS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": EDIT_TOOLS,
    "PostToolUse": EDIT_TOOLS,
    "PostToolUseFailure": EDIT_TOOLS,
    "Stop": "",
    "SessionEnd": "",
}


class ClaudeCode(Agent):
    """Settings in ``~/.claude``, or where ``CLAUDE_CONFIG_DIR`` says."""

    name = "claude-code"
    title = "Claude Code"
    programs = ("claude",)
    best = Records("world", edits=True, prompts=True, sessions=True)

    def settings_directory(self, around: Surroundings) -> Path:
        return around.directory("CLAUDE_CONFIG_DIR", ".claude")

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        files = {
            "user": self.settings_directory(around) / "settings.json",
            "project": around.project / ".claude" / "settings.json",
            "local": around.project / ".claude" / "settings.local.json",
        }
        additions = self.command_hooks(around, scope, EVENTS, HOOK_TIMEOUT_S)
        if scope != "project":  # a path of this machine breaks every command of a teammate
            additions = (Addition(PREFIX, prefix_value(around)), *additions)
        return (JsonEdit(files[scope], additions, self._is_ours),)

    def mcp_edit(self, around: Surroundings, scope: Scope) -> Edit:
        """In the files that ``claude mcp add --scope`` writes."""
        entry = {"type": "stdio", **self.mcp_entry(around, scope)}
        if scope == "project":
            addition = Addition((SERVERS, SERVER), entry)
            return JsonEdit(around.project / ".mcp.json", (addition,), is_our_server)
        directory = around.variables.get("CLAUDE_CONFIG_DIR") or around.home
        project = str(around.project) if scope == "local" else None
        return ClaudeServersEdit(Path(directory) / ".claude.json", project, entry)

    def _is_ours(self, value: object) -> bool:
        return is_our_prefix(value) or self.is_our_hook(value)

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        return {
            "user": self.settings_directory(around) / "CLAUDE.md",
            "project": around.project / "CLAUDE.md",
            "local": around.project / "CLAUDE.local.md",
        }[scope]


def prefix_value(around: Surroundings) -> str:
    """Without ``-c``: Claude Code starts MCP servers with the whole value as the program's name."""
    return str(around.bin / SHELL_SCRIPT)


def is_our_prefix(value: object) -> bool:
    """Whether the prefix runs the generated script, wherever it is; earlier ones end in ``-c``."""
    return isinstance(value, str) and value.removesuffix(" -c").endswith(f"/bin/{SHELL_SCRIPT}")
