"""Take back one command, or some of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.choice import add_choice_options, add_git_option, choice_of
from substrate.cli.render import is_in_workspace, place_of, show_reversal
from substrate.errors import NotFoundError
from substrate.recorder.roll_back import undo_command

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "undo"
HELP = "take back one command, keeping everything done since"
EXAMPLE = "substrate undo @ --path src/app.py"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID",
        help="a command (or a session: all of it); default: the session's last, not yet undone",
    )  # fmt: skip
    add_choice_options(parser)
    add_git_option(parser)


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    try:
        outcome = undo_command(place, args.id, choice_of(args, place), with_git=args.with_git)
    except NotFoundError as error:
        if args.id is None or not is_in_workspace(place, args.id):
            raise
        raise NotFoundError(
            error.message,
            hint=f"for a file of the last command: substrate undo --path {args.id}",
        ) from None
    return show_reversal(context.output, outcome, dry_run=args.dry_run)
