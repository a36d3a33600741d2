"""Serve the tools on stdin and stdout, until the agent closes them."""

from __future__ import annotations

from pathlib import Path

from substrate import __version__
from substrate.errors import MissingDependencyError
from substrate.system import Environment

_INSTRUCTIONS = """Substrate records every command and edit in this project and can take each back.
Before something risky: checkpoint. After a mistake of yours: log, diff, then undo with its id;
later work stays. run_in_world tries a command without changing the project. You may change only
what your own session did; ask the user for the rest."""


def serve(project: Path, environment: Environment, *, may_take_back_any: bool) -> None:
    """Answer MCP requests; returns when stdin ends."""
    from importlib import util

    if util.find_spec("mcp") is None:
        raise MissingDependencyError(
            "the MCP server needs the package mcp",
            hint="install it: pip install 'substrate-recorder[mcp]'",
        )
    from substrate.mcp_server import early_answers

    end = early_answers.begin(environment.substrate_home)
    from mcp.server.mcpserver import MCPServer

    from substrate.mcp_server.allowed_changes import OwnWork
    from substrate.mcp_server.command_line import CommandLine
    from substrate.mcp_server.tools import Tools

    cli = CommandLine(project, environment.variables)
    own = OwnWork(cli, environment, may_take_back_any=may_take_back_any)
    server: MCPServer[object] = MCPServer(
        "substrate", version=__version__, instructions=_INSTRUCTIONS
    )
    Tools(cli, own).register(server)
    try:
        server.run("stdio")
    finally:
        end()
