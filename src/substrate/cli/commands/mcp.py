"""Serve history to a coding agent over the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_OK
from substrate.mcp_server import serve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "mcp"
HELP = "serve history to a coding agent over MCP, on stdin and stdout"
EXAMPLE = "substrate mcp"


def configure(parser: ArgumentParser) -> None:
    del parser  # no options: the agent starts it


def run(args: Namespace, context: Context) -> int:
    del args
    place = place_of(context)
    may_any = place.user_config().agents_may_take_back == "any"
    serve(context.cwd, context.environment, may_take_back_any=may_any)
    return EXIT_OK
