"""A Claude Code plugin and a Gemini CLI extension, from the same source as what `connect` writes.

A plugin holds no path of this machine: it starts the `substrate` on PATH, and does nothing where
there is none. It cannot set Claude Code's shell prefix: Bash calls need `substrate connect`.

    claude-code   .claude-plugin/plugin.json  hooks/hooks.json  .mcp.json  skills/substrate/SKILL.md
    gemini-cli    gemini-extension.json       hooks/hooks.json             GEMINI.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from substrate.coding_agents import claude_code, gemini_cli, marked_block
from substrate.coding_agents.agent import HOOK_TIMEOUT_S, Agent, event_hooks
from substrate.coding_agents.mcp_registration import SERVER, SERVERS
from substrate.errors import RefusedError, UsageError
from substrate.system.files import read_bytes_or_none, write_atomic

_NAME = "substrate"
_ABOUT = "Records what the agent does, and takes it back: shell commands, edits, prompts"
_SERVER = {SERVERS: {SERVER: {"command": "substrate", "args": ["mcp"]}}}
_SKILL = f"""\
---
name: {_NAME}
description: Take back your own commands and edits, set checkpoints, try a command without changes
---

"""

Files = dict[str, str]


def plugin_files(agent: Agent, version: str) -> Files:
    """The files of the agent's plugin, by their place in its directory."""
    make = _MAKERS.get(agent.name)
    if make is None:
        raise UsageError(
            f"{agent.title} has no plugin of Substrate",
            hint=f"there is one for {' and '.join(_MAKERS)}; otherwise substrate connect",
        )
    return make(version)


def write_plugin(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files. A file that is there and differs must be an earlier one of ours."""
    first = directory / next(iter(files))
    if directory.exists() and any(directory.iterdir()) and not _is_ours(first):
        raise RefusedError(
            f"{directory} is not empty and holds no plugin of Substrate",
            hint="nothing was changed; name a new directory",
        )
    linked = [path for place in files for path in _steps(directory, place) if path.is_symlink()]
    if linked:
        raise RefusedError(
            f"{linked[0]} is a link: nothing was changed", hint="remove it, or name a new directory"
        )
    for place, text in files.items():
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if read_bytes_or_none(path) != text.encode():
            write_atomic(path, text.encode(), mode=0o644)


def _steps(directory: Path, place: str) -> list[Path]:
    """The file and the directories above it, up to `directory`."""
    path = directory / place
    return [path, *(one for one in path.parents if directory in one.parents)]


def _is_ours(description: Path) -> bool:
    try:
        found = json.loads(read_bytes_or_none(description) or b"null")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("name") == _NAME


def _claude_code(version: str) -> Files:
    about = {"name": _NAME, "version": version, "description": _ABOUT}
    return {
        ".claude-plugin/plugin.json": _json(about),
        "hooks/hooks.json": _hooks("claude-code", claude_code.EVENTS, HOOK_TIMEOUT_S),
        ".mcp.json": _json(_SERVER),
        "skills/substrate/SKILL.md": _SKILL + marked_block.instructions(),
    }


def _gemini_cli(version: str) -> Files:
    about = {"name": _NAME, "version": version, "description": _ABOUT}
    return {
        "gemini-extension.json": _json({**about, **_SERVER, "contextFileName": "GEMINI.md"}),
        "hooks/hooks.json": _hooks("gemini-cli", gemini_cli.EVENTS, HOOK_TIMEOUT_S * 1000),
        "GEMINI.md": marked_block.instructions(),
    }


def _hooks(agent: str, events: Mapping[str, str], timeout: int) -> str:
    # Exit status 2 would block the agent, so no failure may get out.
    command = (
        f"! command -v substrate >/dev/null 2>&1 || substrate hook {agent} 2>/dev/null || true"
    )
    return _json({"hooks": {name: [one] for name, one in event_hooks(command, events, timeout)}})


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


_MAKERS: dict[str, Callable[[str], Files]] = {
    "claude-code": _claude_code,
    "gemini-cli": _gemini_cli,
}
