"""Disconnect coding agents: remove what `connect` added to their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import removal_json, show_removal, surroundings_of
from substrate.coding_agents import (
    AGENTS,
    Agent,
    Surroundings,
    agent_named,
    carry_out_removal,
    locked,
    plan_removal,
    remove_shims,
    shim_names,
)
from substrate.errors import EXIT_OK

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "disconnect"
HELP = "remove from agents' settings what connect added, and nothing else"
EXAMPLE = "substrate disconnect claude-code"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "agents", nargs="*", metavar="AGENT",
        help="the agents to disconnect, or names of shims; default: all of them",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")


def run(args: Namespace, context: Context) -> int:
    around = surroundings_of(context)
    agents, shims = _chosen(args.agents, around)
    if args.dry_run:
        removals = plan_removal(agents, around)
    else:
        with locked(around):
            removals = plan_removal(agents, around)
            carry_out_removal(removals, agents, around)
            for name in shims:
                remove_shims(around, name)
    if context.json:
        context.output.emit_json(
            {
                "dry_run": args.dry_run,
                "files": [removal_json(one) for one in removals],
                "shims": shims,
            }
        )
        return EXIT_OK
    for one in removals:
        show_removal(one, context)
    for name in shims:
        context.output.line(f"  remove    {around.substrate_home / 'shims' / name}")
    if not removals and not shims:
        context.output.line("Nothing was connected.")
    elif args.dry_run:
        context.output.line("Nothing was changed. Without --dry-run it is.")
    else:
        context.output.line("Disconnected. Recorded history stays: substrate log")
    return EXIT_OK


def _chosen(names: list[str], around: Surroundings) -> tuple[list[Agent], list[str]]:
    """The agents and the shims that the names mean."""
    there = shim_names(around)
    if not names:
        return list(AGENTS), there
    shims = [name for name in names if name in there]
    return [agent_named(name) for name in names if name not in there], shims
