"""What differs between two commits, down to symbols, and what that can break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.graph_render import delta_json, progress_on, show_delta
from substrate.errors import EXIT_OK
from substrate.recorder import impact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "delta"
HELP = "compare two commits: files, symbols, and what depends on them"
EXAMPLE = "ctx delta --base main --head HEAD --human"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--base", metavar="REV", required=True, help="the older side")
    parser.add_argument(
        "--head", metavar="REV", default="HEAD", help="the newer side (default HEAD)"
    )
    parser.add_argument("--human", action="store_true", help="for people instead of JSON")


def run(args: Namespace, context: Context) -> int:
    found = impact.delta_between(context.cwd, args.base, args.head, progress_on(context.output))
    if args.human and not context.json:
        show_delta(context.output, found)
    else:
        context.output.emit_json(delta_json(found))
    return EXIT_OK
