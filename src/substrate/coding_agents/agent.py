"""What a coding agent is for `connect`: where its settings are and what they need."""

from __future__ import annotations

import os
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from substrate.coding_agents.mcp_registration import (
    MCP_SCRIPT,
    SERVER,
    SERVERS,
    is_our_server,
    json_entry,
)
from substrate.coding_agents.settings_edit import Edit, JsonEdit
from substrate.coding_agents.settings_json import Addition

Scope = Literal["user", "project", "local"]
SCOPES: tuple[Scope, ...] = ("user", "project", "local")
#: The scripts in ``$SUBSTRATE_HOME/bin`` that settings name.
SHELL_SCRIPT, HOOK_SCRIPT = "substrate-shell", "substrate-hook"
#: A hook ends within 50 ms; this limit is for a machine that cannot start programs.
HOOK_TIMEOUT_S = 10
NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class Surroundings(NamedTuple):
    """The directories and variables that decide where settings are."""

    home: Path
    substrate_home: Path
    #: The root of the project, for the scopes `project` and `local`.
    project: Path
    variables: Mapping[str, str]

    @property
    def bin(self) -> Path:
        """Where the generated scripts are."""
        return self.substrate_home / "bin"

    def directory(self, variable: str, default: str) -> Path:
        """A directory that a variable of the agent may name; otherwise one in the home."""
        return Path(self.variables.get(variable) or self.home / default)


class Records(NamedTuple):
    """What the written settings let Substrate record."""

    shell: Literal["world", "observed", "none"] = "none"
    edits: bool = False
    prompts: bool = False
    sessions: bool = False
    #: Why it is not more, one sentence each.
    reasons: tuple[str, ...] = ()


class Agent(ABC):
    """One coding agent. `name` is what `substrate hook` calls it."""

    name: str
    title: str
    #: Its programs, as found on PATH.
    programs: tuple[str, ...]
    #: False: written after its documentation, never run against the real program.
    is_tested = True
    #: What its settings can make Substrate record, at best.
    best = Records("observed", edits=True, prompts=True, sessions=True)
    #: Why its shell commands have no world, if they have none.
    why_no_world = ""

    @abstractmethod
    def settings_directory(self, around: Surroundings) -> Path:
        """Exists if the agent was ever used by this user."""

    @abstractmethod
    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        """What `connect` adds, file by file; empty if the agent has no such scope."""

    def mcp_edit(self, around: Surroundings, scope: Scope) -> Edit | None:
        """What registers the MCP server; None if `connect` does not know how, in this scope."""
        del around, scope
        return None

    def edits_with_mcp(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        """`edits` and `mcp_edit`, one edit for each file."""
        edits, server = self.edits(around, scope), self.mcp_edit(around, scope)
        if not edits or server is None:
            return edits
        for number, one in enumerate(edits):
            if one.path == server.path and isinstance(one, JsonEdit):
                assert isinstance(server, JsonEdit)
                return (*edits[:number], one.with_other(server), *edits[number + 1 :])
        return (*edits, server)

    def json_server(self, path: Path, around: Surroundings, scope: Scope) -> JsonEdit:
        """The server in ``mcpServers`` of a JSON file."""
        addition = Addition((SERVERS, SERVER), self.mcp_entry(around, scope))
        return JsonEdit(path, (addition,), is_our_server)

    def mcp_entry(self, around: Surroundings, scope: Scope) -> dict[str, object]:
        """The server as JSON settings have it."""
        return json_entry(None if scope == "project" else around.bin / MCP_SCRIPT)

    @abstractmethod
    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        """The file of instructions that the agent reads in this scope."""

    def why_not_scope(self, scope: Scope) -> str:
        """Why `edits` has nothing for a scope."""
        return f"{self.title} has no settings of scope {scope}"

    def program(self, around: Surroundings) -> str | None:
        """The path of the agent's program, if it is installed."""
        path = around.variables.get("PATH", os.defpath)
        return next(filter(None, (shutil.which(name, path=path) for name in self.programs)), None)

    def is_present(self, around: Surroundings) -> bool:
        """Whether the user has this agent: its program or its settings."""
        return self.program(around) is not None or self.settings_directory(around).is_dir()

    def hook_command(self, around: Surroundings, scope: Scope) -> str:
        """The shell command of every hook.

        In project scope it holds no path of this machine: teammates read the same file, and for a
        teammate without Substrate the command does nothing.
        """
        if scope != "project":
            return f"{shlex.quote(str(around.bin / HOOK_SCRIPT))} {self.name}"
        script = f'"${{SUBSTRATE_HOME:-$HOME/.substrate}}/bin/{HOOK_SCRIPT}"'
        return f'hook={script}; [ ! -x "$hook" ] || "$hook" {self.name}'

    def is_our_command(self, command: object) -> bool:
        """Whether a hook's command is one that `hook_command` made, in any scope or version."""
        return (
            isinstance(command, str)
            and HOOK_SCRIPT in command
            and command.split()[-1:] == [self.name]
        )

    def is_our_hook(self, entry: object) -> bool:
        """Whether an entry of a list of hooks is ours: in Claude Code's form, or a plain one."""
        if not isinstance(entry, dict):
            return False
        inner = entry.get("hooks")
        if isinstance(inner, list):
            return bool(inner) and all(self.is_our_hook(one) for one in inner)
        return any(self.is_our_command(entry.get(key)) for key in ("command", "bash"))

    def command_hooks(
        self,
        around: Surroundings,
        scope: Scope,
        events: Mapping[str, str],
        timeout: int,
        most: Mapping[str, int] = NO_LIMITS,
    ) -> tuple[Addition, ...]:
        """Hooks in the form that Claude Code began and Codex and Gemini CLI share.

        `events`: the matcher of each event, "" for none. `timeout`: in the agent's own unit.
        `most`: the agent's own limits, by event.
        """
        command = self.hook_command(around, scope)
        return tuple(
            Addition(("hooks", event), entry, in_array=True)
            for event, entry in event_hooks(command, events, timeout, most)
        )


def event_hooks(
    command: str, events: Mapping[str, str], timeout: int, most: Mapping[str, int] = NO_LIMITS
) -> Iterator[tuple[str, dict[str, object]]]:
    """The entry of each event in a list of hooks that run `command`."""
    for event, matcher in events.items():
        limit = min(timeout, most.get(event, timeout))
        hook = {"type": "command", "command": command, "timeout": limit}
        yield event, {"matcher": matcher, "hooks": [hook]} if matcher else {"hooks": [hook]}
