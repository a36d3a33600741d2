"""Take back the last undo or rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.choice import add_choice_options, add_git_option, choice_of
from substrate.cli.render import place_of, show_reversal
from substrate.recorder.roll_back import redo_command

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "redo"
HELP = "take back the last undo or rollback"
EXAMPLE = "substrate redo"


def configure(parser: ArgumentParser) -> None:
    add_choice_options(parser)
    add_git_option(parser)


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    outcome = redo_command(place, choice_of(args, place), with_git=args.with_git)
    return show_reversal(context.output, outcome, dry_run=args.dry_run)
