"""Create .ctx, the directory of the graph and of context packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.errors import EXIT_OK
from substrate.recorder.code_graph import graph_location

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "init"
HELP = "make .ctx in this project, hidden from git"
EXAMPLE = "ctx init"


def configure(parser: ArgumentParser) -> None:
    parser.epilog = (parser.epilog or "") + "\n\nRunning it again does no harm."


def run(args: Namespace, context: Context) -> int:
    directory, is_new = graph_location.make_ctx(context.cwd)
    if context.json:
        context.output.emit_json({"ctx": str(directory), "created": is_new})
    else:
        context.output.line(
            "made " if is_new else "there already: ", Styled(str(directory), "cyan")
        )
    return EXIT_OK
