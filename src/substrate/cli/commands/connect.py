"""Connect coding agents: their commands, edits and prompts are recorded from then on."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from substrate import __version__
from substrate.cli.render import (
    connection_json,
    plan_json,
    show_connections,
    show_plan,
    surroundings_of,
)
from substrate.coding_agents import (
    AGENTS,
    SCOPES,
    Agent,
    Codex,
    Plan,
    Surroundings,
    agent_named,
    carry_out,
    connection_of,
    installed_program,
    locked,
    plan,
    plugin_files,
    shim_names,
    trust_hooks,
    write_plugin,
    write_shims,
)
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, NotFoundError, RefusedError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "connect"
HELP = "record what coding agents do: Claude Code, Codex, Gemini CLI and others"
EXAMPLE = "substrate connect --dry-run"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "agents", nargs="*", metavar="AGENT",
        help="the agents to connect; default: those that are installed",
    )  # fmt: skip
    parser.add_argument(
        "--status", action="store_true", help="what each agent's connection records"
    )
    parser.add_argument(
        "--scope", choices=SCOPES, default="user",
        help="whose settings: yours (default), the project's, or yours in this project",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be written")
    parser.add_argument(
        "--instructions", action="store_true",
        help="also add a marked block to CLAUDE.md, AGENTS.md or GEMINI.md",
    )  # fmt: skip
    parser.add_argument(
        "--trust-hooks", action="store_true",
        help="also tell Codex to trust these hooks, in place of its /hooks",
    )  # fmt: skip
    parser.add_argument(
        "--no-mcp", dest="mcp", action="store_false", help="do not register the MCP server"
    )
    parser.add_argument(
        "--shim", metavar="NAME",
        help="for any other agent: make a bash and a sh to put first in its PATH",
    )  # fmt: skip
    parser.add_argument(
        "--plugin", metavar="DIR",
        help="make a plugin of Claude Code or an extension of Gemini CLI to share",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    around = surroundings_of(context)
    if args.shim is not None:
        return _shim(args, context, around)
    if args.plugin is not None:
        return _plugin(args, context)
    if args.status:
        return _status(args, context, around)
    agents = _chosen(args.agents, around)
    codex = next((one for one in agents if isinstance(one, Codex)), None)
    if args.trust_hooks and codex is None:
        raise UsageError("--trust-hooks is for Codex", hint=f"substrate {NAME} codex --trust-hooks")
    wanted = {"instructions": args.instructions, "mcp": args.mcp}
    planned = plan(agents, around, args.scope, **wanted)
    if not planned.files:
        raise NotFoundError(
            f"no agent has settings of scope {args.scope}",
            hint="; ".join(one.reason for one in planned.skipped),
        )
    if args.dry_run or not (planned.is_done or args.yes or _agrees(planned, context)):
        return _only_plan(planned, context, dry_run=args.dry_run)
    with locked(around):
        planned = plan(agents, around, args.scope, **wanted)
        was_done = planned.is_done
        carry_out(planned)
        if args.trust_hooks and codex is not None:
            trust_hooks(codex, around)
    _report(planned, context, was_done=was_done, trusted=args.trust_hooks)
    return EXIT_OK


def _chosen(names: list[str], around: Surroundings) -> list[Agent]:
    if names:
        return list(dict.fromkeys(agent_named(name) for name in names))
    found = [agent for agent in AGENTS if agent.is_present(around)]
    if not found:
        raise NotFoundError(
            "no coding agent was found on this machine",
            hint=f"name one: substrate connect {AGENTS[0].name};"
            " for any other: substrate connect --shim NAME",
        )
    return found


def _agrees(planned: Plan, context: Context) -> bool:
    """Ask on a terminal; without one there is no agreement."""
    if not (sys.stdin.isatty() and context.output.is_terminal) or context.json:
        return False
    show_plan(planned, context)
    context.output.note("write this? [y/N]")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    raise RefusedError("not confirmed: nothing was changed", hint="--yes does not ask")


def _only_plan(planned: Plan, context: Context, *, dry_run: bool) -> int:
    if context.json:
        context.output.emit_json(_document(planned, dry_run=True))
    else:
        show_plan(planned, context)
    if dry_run:
        if not context.json:
            context.output.line("Nothing was written. Without --dry-run it is.")
        return EXIT_OK
    raise RefusedError(
        "connecting needs your agreement: nothing was written",
        hint="this is what would be written; add --yes to agree",
    )


def _document(planned: Plan, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "scope": planned.scope,
        "program": str(planned.program),
        "agents": plan_json(planned),
        "mcp": planned.mcp,
        "disconnect_with": _disconnect(planned),
    }


def _disconnect(planned: Plan) -> str:
    names = dict.fromkeys(one.agent.name for one in planned.files)
    return f"substrate disconnect {' '.join(names)}"


def _report(planned: Plan, context: Context, *, was_done: bool, trusted: bool) -> None:
    if context.json:
        context.output.emit_json(_document(planned, dry_run=False))
        return
    show_plan(planned, context)
    if was_done:
        context.output.line("Everything was connected already.")
    else:
        context.output.line("Connected. Sessions that start from now on are recorded.")
        context.output.line(
            "In a project without history, the agent's first session there begins it. To leave"
            " projects out: deny under [agents] in config.toml"
        )
    if trusted:
        context.output.line("Codex trusts these hooks from now on, by its config.toml.")
    elif any(isinstance(one.agent, Codex) for one in planned.files):
        context.output.line("Codex runs new hooks once you trust them: start codex, type /hooks.")
    context.output.line("What is recorded: substrate connect --status")
    context.output.line(f"To undo this: {_disconnect(planned)}")


def _status(args: Namespace, context: Context, around: Surroundings) -> int:
    wanted = [agent_named(name) for name in args.agents]
    found = [connection_of(agent, around) for agent in wanted or AGENTS]
    if not wanted:
        found = [one for one in found if one.scopes or one.agent.is_present(around)]
    status = EXIT_DIFFERENT if any(one.unreadable for one in found) else EXIT_OK
    if context.json:
        context.output.emit_json(
            {"agents": [connection_json(one) for one in found], "shims": shim_names(around)}
        )
        return status
    if not found:
        context.output.line("No coding agent was found on this machine.")
    else:
        show_connections(found, context)
    for name in shim_names(around):
        context.output.line(f"{name}: shims in {around.substrate_home / 'shims' / name}")
    return status


def _plugin(args: Namespace, context: Context) -> int:
    if len(args.agents) != 1 or args.status or args.instructions or args.trust_hooks:
        raise UsageError("--plugin takes one agent", hint=f"{NAME} claude-code --plugin DIR")
    agent = agent_named(args.agents[0])
    directory, files = context.cwd / args.plugin, plugin_files(agent, __version__)
    if not args.dry_run:
        write_plugin(directory, files)
    if context.json:
        found = {"agent": agent.name, "path": str(directory), "files": list(files)}
        context.output.emit_json({"dry_run": args.dry_run, **found})
        return EXIT_OK
    context.output.line(f"{'Would write' if args.dry_run else 'Wrote'} to {directory}:")
    for name in files:
        context.output.line(f"  {name}")
    start = "claude --plugin-dir" if agent.name == "claude-code" else "gemini extensions install"
    context.output.line(f"To use it: {start} {shlex.quote(str(directory))}")
    context.output.line(
        "It records where a history is, or where allow under [agents] in config.toml names the"
        f" project. Instead of it, `substrate connect {agent.name}` writes your own settings."
    )
    return EXIT_OK


def _shim(args: Namespace, context: Context, around: Surroundings) -> int:
    if args.agents or args.status or args.instructions or args.trust_hooks or not args.mcp:
        raise UsageError("--shim takes no other agent or option", hint=f"{NAME} --shim NAME")
    program = installed_program()
    directory = write_shims(around, args.shim, program, dry_run=args.dry_run)
    line = f'export PATH={shlex.quote(str(directory))}:"$PATH"'
    if context.json:
        context.output.emit_json(
            {"dry_run": args.dry_run, "shim": args.shim, "path": str(directory), "line": line}
        )
        return EXIT_OK
    context.output.line(f"{'Would write' if args.dry_run else 'Wrote'} bash and sh to {directory}")
    context.output.line("Start the agent with them first in its PATH:")
    context.output.line(f"  {line}")
    context.output.line(f"To undo this: substrate disconnect {args.shim}")
    return EXIT_OK
