"""Stop recording in this project, until `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_OK
from substrate.recorder import pause

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "pause"
HELP = "record nothing in this project until `resume`"
EXAMPLE = "substrate pause"


def configure(parser: ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: Namespace, context: Context) -> int:
    del args
    place = place_of(context)
    pause(place.workspace)
    if context.json:
        context.output.emit_json({"workspace": str(place.workspace.root), "paused": True})
    else:
        context.output.line(f"Recording is paused in {place.workspace.root}.")
        context.output.line("To go on: substrate resume")
    return EXIT_OK
