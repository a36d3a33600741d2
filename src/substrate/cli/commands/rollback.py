"""Go back to a point: undo the session's commands after it, or restore the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import add_choice_options, add_git_options, choice_of
from substrate.cli.render import place_of, show_reversal
from substrate.errors import UsageError
from substrate.recorder import roll_back

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "rollback"
HELP = "take back a session's commands after a point; others' work stays"
EXAMPLE = "substrate rollback --checkpoint 2"


def configure(parser: ArgumentParser) -> None:
    point = parser.add_mutually_exclusive_group()
    point.add_argument(
        "--to", metavar="ID", help="the state right after this command, commit or tag"
    )
    point.add_argument(
        "--checkpoint", metavar="[S/]SEQ", help="a checkpoint of the session (or of session S)"
    )
    point.add_argument(
        "--to-prompt", metavar="P",
        help="how things were when this prompt was sent to the coding agent",
    )  # fmt: skip
    parser.add_argument(
        "--session", metavar="S",
        help="alone: how things were when session S ended; else whose checkpoint or commands",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true", help="the whole tree as it was, outside edits included"
    )
    add_choice_options(parser)
    add_git_options(parser, files_only=False)


def run(args: Namespace, context: Context) -> int:
    if (args.to or args.checkpoint or args.to_prompt or context.session) is None:
        raise UsageError(
            "rollback needs a point to go back to",
            hint="--to ID, --to-prompt P, --checkpoint SEQ or --session S;"
            " `substrate checkpoint list` helps",
        )
    place = place_of(context)
    outcome = roll_back(
        place, choice_of(args, place), to=args.to, checkpoint=args.checkpoint,
        session=context.session, prompt=args.to_prompt, exact=args.exact,
    )  # fmt: skip
    return show_reversal(context.output, outcome, dry_run=args.dry_run)
