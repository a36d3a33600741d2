"""Coding agents: what `connect` writes into their settings, and what their hooks report.

    known_agents        the agents, one module each: claude_code, codex, gemini_cli, …
    connect             plan the additions, then write them
    disconnect          remove them: byte for byte, if the file did not change since
    connection_status   what the written settings let Substrate record
    settings_json, settings_toml, marked_block   the formats, edited without touching other bytes
    mcp_registration    the MCP server in the settings
    generated_scripts   what the settings name: small scripts, which outlive Substrate
    hook_events         what each agent reports by its hooks, in one form for all
    plugin_directory    a Claude Code plugin and a Gemini CLI extension
    running_agents      which session runs in which process of an agent
    claude_transcript   the shell calls that Claude Code's transcripts name
    shell_wrapper       the command that Claude Code's model asked for, out of its wrapper

Nothing here records anything: the agents' commands and hooks call `substrate` itself.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.coding_agents.agent import SCOPES as SCOPES
    from substrate.coding_agents.agent import Agent as Agent
    from substrate.coding_agents.agent import Surroundings as Surroundings
    from substrate.coding_agents.claude_transcript import ShellCall as ShellCall
    from substrate.coding_agents.claude_transcript import shell_calls as shell_calls
    from substrate.coding_agents.codex import Codex as Codex
    from substrate.coding_agents.connect import FilePlan as FilePlan
    from substrate.coding_agents.connect import Plan as Plan
    from substrate.coding_agents.connect import carry_out as carry_out
    from substrate.coding_agents.connect import locked as locked
    from substrate.coding_agents.connect import plan as plan
    from substrate.coding_agents.connect import trust_hooks as trust_hooks
    from substrate.coding_agents.connect_note import covers as covers
    from substrate.coding_agents.connection_status import Connection as Connection
    from substrate.coding_agents.connection_status import connection_of as connection_of
    from substrate.coding_agents.disconnect import Removal as Removal
    from substrate.coding_agents.disconnect import carry_out_removal as carry_out_removal
    from substrate.coding_agents.disconnect import plan_removal as plan_removal
    from substrate.coding_agents.generated_scripts import installed_program as installed_program
    from substrate.coding_agents.generated_scripts import remove_shims as remove_shims
    from substrate.coding_agents.generated_scripts import shim_names as shim_names
    from substrate.coding_agents.generated_scripts import write_shims as write_shims
    from substrate.coding_agents.hook_events import HOOKED_AGENTS as HOOKED_AGENTS
    from substrate.coding_agents.hook_events import EventKind as EventKind
    from substrate.coding_agents.hook_events import HookEvent as HookEvent
    from substrate.coding_agents.hook_events import Say as Say
    from substrate.coding_agents.hook_events import hook_answer as hook_answer
    from substrate.coding_agents.hook_events import read_event as read_event
    from substrate.coding_agents.known_agents import AGENTS as AGENTS
    from substrate.coding_agents.known_agents import agent_named as agent_named
    from substrate.coding_agents.mcp_registration import MCP_INSTALL as MCP_INSTALL
    from substrate.coding_agents.plugin_directory import plugin_files as plugin_files
    from substrate.coding_agents.plugin_directory import write_plugin as write_plugin
    from substrate.coding_agents.running_agents import announce as announce
    from substrate.coding_agents.running_agents import session_of_caller as session_of_caller
    from substrate.coding_agents.shell_wrapper import typed as typed

__getattr__ = lazy_names(
    __name__,
    {
        "agent": "Agent, SCOPES, Surroundings",
        "claude_transcript": "ShellCall, shell_calls",
        "codex": "Codex",
        "connect": "FilePlan, Plan, carry_out, locked, plan, trust_hooks",
        "connect_note": "covers",
        "connection_status": "Connection, connection_of",
        "disconnect": "Removal, carry_out_removal, plan_removal",
        "generated_scripts": "installed_program, remove_shims, shim_names, write_shims",
        "hook_events": "EventKind, HOOKED_AGENTS, HookEvent, Say, hook_answer, read_event",
        "known_agents": "AGENTS, agent_named",
        "mcp_registration": "MCP_INSTALL",
        "plugin_directory": "plugin_files, write_plugin",
        "running_agents": "announce, session_of_caller",
        "shell_wrapper": "typed",
    },
)
