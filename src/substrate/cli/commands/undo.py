"""Take back one command, or some of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import paths_of, place_of, show_outcome
from substrate.history.merge import Take
from substrate.history.undo import Choice
from substrate.recorder.roll_back import undo_command

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.recorder.place import Place

NAME = "undo"
HELP = "take back one command, keeping everything done since"
EXAMPLE = "substrate undo c-0k9x --path src/app.py"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID",
        help="a command (or a session: all of it); default: the session's last, not yet undone",
    )  # fmt: skip
    add_choice_options(parser)


def add_choice_options(parser: ArgumentParser) -> None:
    """Shared with rollback and redo."""
    parser.add_argument(
        "--path", action="append", metavar="P", help="only this file or directory (repeatable)"
    )
    parser.add_argument(
        "--take", choices=[take.value for take in Take],
        help="where later work collides: ours keeps what is there, theirs brings back the old",
    )  # fmt: skip
    parser.add_argument(
        "--skip-conflicts", action="store_true", help="leave colliding files as they are"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def choice_of(args: Namespace, place: Place) -> Choice:
    return Choice(
        paths=paths_of(place, args.path),
        take=Take(args.take) if args.take else None,
        skip_conflicts=args.skip_conflicts,
        dry_run=args.dry_run,
    )


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    outcome = undo_command(place, args.id, choice_of(args, place))
    what = outcome.entry.command if outcome.entry else "undo"
    return show_outcome(context.output, outcome, dry_run=args.dry_run, done=what)
