"""Record in this project again, after `pause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_OK
from substrate.recorder import resume

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "resume"
HELP = "record in this project again, after `pause`"
EXAMPLE = "substrate resume"


def configure(parser: ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: Namespace, context: Context) -> int:
    del args
    place = place_of(context)
    resume(place.workspace)
    if context.json:
        context.output.emit_json({"workspace": str(place.workspace.root), "paused": False})
    else:
        context.output.line(
            f"Recording goes on in {place.workspace.root}. What changed since the pause began is"
            " recorded as external, with the next command."
        )
    return EXIT_OK
