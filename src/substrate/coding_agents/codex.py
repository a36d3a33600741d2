"""Codex CLI: hooks observe its commands and report its patches and prompts.

Its commands are not rewritten: docs/decisions/0050-commands-are-not-rewritten.md. Codex skips a
hook until the user trusts it, in `/hooks`; only `connect --trust-hooks` writes that trust.
"""

from __future__ import annotations

import json
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from substrate.coding_agents import settings_toml
from substrate.coding_agents.agent import HOOK_TIMEOUT_S, Agent, Scope, Surroundings
from substrate.coding_agents.mcp_registration import MCP_SCRIPT, SERVER, is_our_server
from substrate.coding_agents.settings_edit import Edit, JsonEdit, TomlEdit
from substrate.coding_agents.settings_toml import Table
from substrate.errors import MissingDependencyError, RefusedError
from substrate.system.files import read_bytes_or_none, real_path
from substrate.system.process import Conversation, converse

TOOLS = "Bash|apply_patch"
EVENTS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": TOOLS,
    "PostToolUse": TOOLS,
    "Stop": "",
    "SessionEnd": "",
}
#: Codex shows an error to the user where a timeout is longer.
_MOST_S = {"SessionEnd": 3}
_PATIENCE_S = 20.0
_STATE = ("hooks", "state")


class Codex(Agent):
    """Settings in ``~/.codex``, or where ``CODEX_HOME`` says."""

    name = "codex"
    title = "Codex"
    programs = ("codex",)
    why_no_world = (
        "Codex's rules would see a rewritten command: a forbidden command then runs (measured)"
    )

    def settings_directory(self, around: Surroundings) -> Path:
        return around.directory("CODEX_HOME", ".codex")

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        if scope == "local":
            return ()
        directory = self.settings_directory(around)
        if scope == "project":
            directory = around.project / ".codex"
        additions = self.command_hooks(around, scope, EVENTS, HOOK_TIMEOUT_S, _MOST_S)
        return (JsonEdit(directory / "hooks.json", additions, self.is_our_hook),)

    def mcp_edit(self, around: Surroundings, scope: Scope) -> Edit | None:
        """For the user only: Codex reads a project's ``config.toml`` if the user trusts it."""
        if scope != "user":
            return None
        table = Table(("mcp_servers", SERVER), {"command": str(around.bin / MCP_SCRIPT)})
        return TomlEdit(self.config(around), (table,), is_our_server)

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        if scope == "user":
            return self.settings_directory(around) / "AGENTS.md"
        return around.project / "AGENTS.md" if scope == "project" else None

    def config(self, around: Surroundings) -> Path:
        """Where Codex keeps the trust of hooks, whatever their scope."""
        return self.settings_directory(around) / "config.toml"

    def is_trusted(self, around: Surroundings, hooks: Path) -> bool:
        """Whether ``config.toml`` trusts hooks of each event; Codex itself compares the hashes."""
        data = read_bytes_or_none(self.config(around))
        try:
            settings: Any = settings_toml.read((data or b"").decode())
        except (RefusedError, UnicodeDecodeError):
            return False
        for key in _STATE:
            settings = settings.get(key, {}) if isinstance(settings, dict) else {}
        trusted = [
            key
            for key, value in settings.items()
            if isinstance(value, dict) and value.get("trusted_hash")
        ]
        files = {str(hooks), real_path(hooks)}
        return all(
            any(key.startswith(f"{file}:{_snake(event)}:") for file in files for key in trusted)
            for event in EVENTS
        )

    def trust_tables(self, around: Surroundings) -> tuple[Table, ...]:
        """What ``config.toml`` needs for Codex to run our hooks, from Codex itself."""
        program = self.program(around)
        if program is None:
            raise MissingDependencyError(
                "codex is not on PATH, and only Codex can say what to trust",
                hint="install Codex, or trust the hooks in its /hooks",
            )
        answer = _hooks_list(converse([program, "app-server"], env=around.variables), around)
        found = [
            hook
            for place in answer.get("data", [])
            for hook in place.get("hooks", [])
            # Exactly ours: a project's own hooks may only look like it.
            if hook.get("command") == self.hook_command(around, "user")
        ]
        if not all(hook.get("key") and hook.get("currentHash") for hook in found) or not found:
            raise RefusedError(
                "Codex does not report the new hooks, so nothing was trusted",
                hint="start codex and look at /hooks",
            )
        return tuple(
            Table((*_STATE, str(hook.get("key"))), {"trusted_hash": str(hook.get("currentHash"))})
            for hook in found
        )


def _hooks_list(talk: Conversation, around: Surroundings) -> dict[str, Any]:
    """Ask Codex's app server; closing its stdin ends it."""
    client = {"name": "substrate", "title": "Substrate", "version": "0"}
    try:
        for message in (
            {"id": 1, "method": "initialize", "params": {"clientInfo": client}},
            {"method": "initialized"},
            {"id": 2, "method": "hooks/list", "params": {"cwds": [str(around.project)]}},
        ):
            talk.stdin.write(json.dumps(message).encode() + b"\n")
        talk.stdin.flush()
        return _answer(talk.stdout.fileno(), wanted=2)
    except OSError as error:
        raise _no_answer() from error
    finally:
        with suppress(OSError):  # it ended before it read everything
            talk.stdin.close()
        talk.stdout.close()
        talk.wait()


def _answer(fd: int, wanted: int) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE_S
    buffer = b""
    while (left_s := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left_s)[0]:
            break
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            break
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            with suppress(ValueError):  # a line of its log
                message = json.loads(line)
                if message.get("id") == wanted and "result" in message:
                    result: dict[str, Any] = message["result"]
                    return result
    raise _no_answer()


def _no_answer() -> RefusedError:
    return RefusedError(
        "Codex's app server did not list its hooks, so nothing was trusted",
        hint="start codex and trust the hooks in /hooks",
    )


def _snake(event: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
