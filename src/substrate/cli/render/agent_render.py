"""Coding agents, for people and for `--json`: plans of `connect` and `disconnect`, the status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render.entry_render import place_of
from substrate.coding_agents import MCP_INSTALL, Connection, FilePlan, Plan, Removal, Surroundings
from substrate.errors import RefusedError

if TYPE_CHECKING:
    from substrate.cli.frame import Context

_MARKS = {"create": "create", "extend": "edit", "none": "as it is", "restore": "edit"}
_YES_NO = {True: "yes", False: "no"}


def surroundings_of(context: Context) -> Surroundings:
    """Where settings are; `RefusedError` inside a world, which must not change them."""
    place = place_of(context)
    place.refuse_inside()
    home = context.environment.home
    if home is None:
        raise RefusedError("your home directory is not known", hint="set HOME and try again")
    return Surroundings(
        home=Path(home),
        substrate_home=context.environment.substrate_home,
        project=place.workspace.root,
        variables=context.environment.variables,
    )


def plan_json(plan: Plan) -> list[dict[str, object]]:
    """One object for each agent, with its files."""
    agents = dict.fromkeys(one.agent for one in plan.files)
    found: list[dict[str, object]] = [
        {
            "agent": agent.name,
            "tested": agent.is_tested,
            "files": [_file_json(one) for one in plan.files if one.agent is agent],
        }
        for agent in agents
    ]
    return found + [{"agent": one.agent.name, "skipped": one.reason} for one in plan.skipped]


def _file_json(one: FilePlan) -> dict[str, object]:
    return {"path": str(one.edit.path), "change": one.change, "adds": list(one.edit.summary())}


def show_plan(plan: Plan, context: Context) -> None:
    """Each file and what it gets."""
    line = context.output.line
    for agent in dict.fromkeys(one.agent for one in plan.files):
        line(Styled(agent.title, "bold"), "" if agent.is_tested else "  (untested)")
        for one in plan.files:
            if one.agent is agent:
                line(f"  {_MARKS[one.change]:<8}  {one.edit.path}")
                for text in one.edit.summary() if one.change != "none" else ():
                    line(f"            + {text}")
    for skipped in plan.skipped:
        line(Styled(skipped.agent.title, "bold"))
        line(f"  skipped   {skipped.reason}")
    if plan.mcp == "missing":
        line("The MCP server is left out, because its package is not installed.")
        line(f"To add it: {MCP_INSTALL}, then connect again.")


def removal_json(one: Removal) -> dict[str, object]:
    return {"agent": one.agent.name, "path": str(one.file.path), "change": one.change}


def show_removal(one: Removal, context: Context) -> None:
    word = "remove" if one.text is None else _MARKS[one.change]
    context.output.line(f"  {word:<8}  {one.file.path}")


def connection_json(one: Connection) -> dict[str, object]:
    return {
        "agent": one.agent.name,
        "title": one.agent.title,
        "program": one.program,
        "tested": one.agent.is_tested,
        "scopes": list(one.scopes),
        "files": [str(path) for path in one.files],
        "records": {
            "shell": one.records.shell,
            "edits": one.records.edits,
            "prompts": one.records.prompts,
            "sessions": one.records.sessions,
        },
        "mcp": one.mcp,
        "why_not_more": list(one.records.reasons) + ([one.mcp_hint] if one.mcp_hint else []),
    }


def show_connections(found: list[Connection], context: Context) -> None:
    """A table of what is recorded, then why it is not more."""
    shells = {"world": "in a world", "observed": "observed", "none": "no"}
    context.output.table(
        [
            (
                one.agent.name,
                ", ".join(one.scopes) or "-",
                shells[one.records.shell],
                _YES_NO[one.records.edits],
                _YES_NO[one.records.prompts],
                _YES_NO[one.records.sessions],
                _YES_NO[one.mcp],
            )
            for one in found
        ],
        header=("agent", "connected", "shell", "edits", "prompts", "sessions", "mcp"),
    )
    for one in found:
        for reason in one.records.reasons if one.scopes else one.unreadable:
            context.output.line(f"{one.agent.name}: {reason}")
        if one.mcp_hint:
            context.output.line(f"{one.agent.name}: {one.mcp_hint}")
