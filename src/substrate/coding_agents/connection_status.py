"""What the written settings of each agent let Substrate record, and why it is not more."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from substrate.coding_agents import mcp_registration, settings_file, settings_json
from substrate.coding_agents.agent import (
    HOOK_SCRIPT,
    SCOPES,
    SHELL_SCRIPT,
    Agent,
    Records,
    Scope,
    Surroundings,
)
from substrate.coding_agents.claude_code import PREFIX, ClaudeCode, prefix_value
from substrate.coding_agents.codex import Codex
from substrate.coding_agents.generated_scripts import why_not_working
from substrate.coding_agents.hook_events import HOOKED_AGENTS
from substrate.coding_agents.mcp_registration import MCP_SCRIPT
from substrate.errors import RefusedError


class Connection(NamedTuple):
    """One agent's connection."""

    agent: Agent
    #: The path of the agent's program; None: not on PATH.
    program: str | None
    scopes: tuple[Scope, ...]
    #: The settings files that hold something of ours.
    files: tuple[Path, ...]
    records: Records
    #: Whether the agent starts the MCP server, and the next step if it does not.
    mcp: bool = False
    mcp_hint: str = ""
    #: Settings files that cannot be read, and why.
    unreadable: tuple[str, ...] = ()


def connection_of(agent: Agent, around: Surroundings) -> Connection:
    """Read the agent's settings in every scope."""
    scopes: list[Scope] = []
    files: list[Path] = []
    reasons: list[str] = []
    unreadable: list[str] = []
    has_prefix = False
    for scope in SCOPES:
        if scope != "user" and around.project == around.home:
            continue
        for edit in agent.edits(around, scope):
            try:
                text = settings_file.read(edit.path).text
                if edit.remove_from(text, ()) == text:
                    continue
                is_whole = edit.is_in(text)
                if isinstance(agent, ClaudeCode):
                    found = settings_json.value_at(text, PREFIX)
                    has_prefix |= found in (prefix_value(around), f"{prefix_value(around)} -c")
            except RefusedError as error:
                unreadable.append(f"{edit.path} cannot be read: {error.message}")
                continue
            scopes.append(scope)
            files.append(edit.path)
            if not is_whole:
                reasons.append(f"{edit.path} has only a part of the settings: connect again")
    records = _records(agent, around, files, has_prefix)
    has_mcp, mcp_hint = _mcp(agent, around, tuple(scopes))
    return Connection(
        agent,
        agent.program(around),
        tuple(scopes),
        tuple(files),
        records._replace(reasons=(*unreadable, *reasons, *records.reasons)),
        has_mcp,
        mcp_hint,
        tuple(unreadable),
    )


def _mcp(agent: Agent, around: Surroundings, scopes: tuple[Scope, ...]) -> tuple[bool, str]:
    """Whether the MCP server is registered and can start; otherwise what to do."""
    edits = [edit for scope in scopes if (edit := agent.mcp_edit(around, scope)) is not None]
    if not edits:
        return False, _why_no_mcp(agent, around, scopes)
    again = f"substrate connect {agent.name}" + (
        "" if scopes[0] == "user" else f" --scope {scopes[0]}"
    )
    is_registered = False
    for edit in edits:
        try:
            text = settings_file.read(edit.path).text
            is_registered |= edit.remove_from(text, ()) != text
        except RefusedError as error:
            return False, f"no MCP server: {edit.path} cannot be read: {error.message}"
    if not mcp_registration.is_installed():
        what = "does not start" if is_registered else "is not registered"
        return False, f"the MCP server {what}: {mcp_registration.MCP_INSTALL}, then {again}"
    if not is_registered:
        return False, f"the MCP server is not registered: {again}"
    trouble = why_not_working(around, MCP_SCRIPT)
    return not trouble, f"the MCP server does not start: {trouble}" if trouble else ""


def _why_no_mcp(agent: Agent, around: Surroundings, scopes: tuple[Scope, ...]) -> str:
    if not scopes:
        return ""
    if agent.mcp_edit(around, "user") is not None:
        return (
            f"the MCP server is registered with --scope user only: substrate connect {agent.name}"
        )
    return f"connect does not register the MCP server for {agent.title}: docs/mcp.md"


def _records(agent: Agent, around: Surroundings, files: list[Path], has_prefix: bool) -> Records:
    if not files:
        return Records(reasons=(f"not connected: substrate connect {agent.name}",))
    reasons = []
    hook_trouble = why_not_working(around, HOOK_SCRIPT)
    if not hook_trouble and agent.name not in HOOKED_AGENTS:
        hook_trouble = f"Substrate does not read the hooks of {agent.title} yet"
    if not hook_trouble and isinstance(agent, Codex) and not _is_trusted(agent, around, files):
        hook_trouble = "Codex skips hooks until you trust them: start codex, type /hooks"
    if hook_trouble:
        reasons.append(hook_trouble)
    best = agent.best if not hook_trouble else Records()
    shell = best.shell
    if isinstance(agent, ClaudeCode):
        shell, why = _claude_shell(around, has_prefix)
        reasons += [why] if why else []
    elif agent.why_no_world:
        reasons.append(f"no world for its shell commands: {agent.why_no_world}")
    if not agent.is_tested:
        reasons.append(f"untested with the real {agent.title}: written after its documentation")
    return best._replace(shell=shell, reasons=tuple(reasons))


def _claude_shell(around: Surroundings, has_prefix: bool) -> tuple[Literal["world", "none"], str]:
    if not has_prefix:
        return "none", "no shell prefix in scope project: connect with --scope user or local"
    trouble = why_not_working(around, SHELL_SCRIPT)
    return ("none", trouble) if trouble else ("world", "")


def _is_trusted(agent: Codex, around: Surroundings, files: list[Path]) -> bool:
    return all(agent.is_trusted(around, file) for file in files)
