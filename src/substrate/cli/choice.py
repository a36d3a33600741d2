"""How undo, redo and rollback may proceed: the options they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import paths_of
from substrate.history.undo import Choice
from substrate.objects.merge import Take

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.recorder.place import Place


def add_choice_options(parser: ArgumentParser) -> None:
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


def add_git_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--with-git", action="store_true",
        help="also move the branches and HEAD of your git repository, unless moved since",
    )  # fmt: skip


def choice_of(args: Namespace, place: Place) -> Choice:
    return Choice(
        paths=paths_of(place, args.path),
        take=Take(args.take) if args.take else None,
        skip_conflicts=args.skip_conflicts,
        dry_run=args.dry_run,
    )
