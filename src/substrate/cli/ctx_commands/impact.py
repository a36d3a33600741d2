"""What a change can break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import impact_json, place_of, progress_on, show_impact
from substrate.errors import EXIT_OK
from substrate.recorder.code_graph import impact as use_case

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "impact"
HELP = "say what a commit or a recorded command can break"
EXAMPLE = "ctx impact HEAD"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "change", metavar="REV|COMMAND-ID", nargs="?", default="HEAD",
        help="a git revision, or a command of `substrate log` (default HEAD)",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    found = use_case.impact_of(context.cwd, args.change, place, progress_on(context.output))
    if context.json:
        context.output.emit_json(impact_json(args.change, found))
    else:
        show_impact(context.output, args.change, found)
    return EXIT_OK
