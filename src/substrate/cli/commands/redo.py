"""Reverse the last undo or rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import add_choice_options, add_git_options, choice_of, deciding_branches
from substrate.cli.render import place_of, show_reversal
from substrate.recorder import redo_command

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "redo"
HELP = "take back the last undo or rollback"
EXAMPLE = "substrate redo"


def configure(parser: ArgumentParser) -> None:
    add_choice_options(parser)
    add_git_options(parser)


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    outcome = deciding_branches(
        context, choice_of(args, place), lambda choice: redo_command(place, choice)
    )
    return show_reversal(context.output, outcome, dry_run=args.dry_run)
