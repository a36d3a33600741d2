"""Undo one command, one prompt, a range, or some of its files."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from substrate.cli.frame import (
    add_choice_options,
    add_git_options,
    add_scope_options,
    choice_of,
    choose_hunks,
    deciding_branches,
    scope_finder,
)
from substrate.cli.render import is_in_workspace, place_of, show_reversal
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.recorder import queries, scope_to_undo, undo_command, undo_hunks, undo_scope

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from substrate.cli.frame import Context
    from substrate.recorder import Choice, HistoryStore, Outcome, Scope

    Find = Callable[[HistoryStore], Scope]

NAME = "undo"
HELP = "take back a command, a prompt or a range, keeping everything else"
EXAMPLE = "substrate undo @ --path src/app.py"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID",
        help="a command, a prompt, a range A..B (after A, up to B), or the full id of a session:"
        " all of it; default: the session's newest command that changed anything",
    )  # fmt: skip
    add_scope_options(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--hunk", action="append", metavar="H",
        help="only this hunk (repeatable); `substrate diff --hunks` lists them",
    )  # fmt: skip
    which.add_argument(
        "-p", "--patch", action="store_true", help="ask hunk by hunk what to take back"
    )
    add_choice_options(parser)
    add_git_options(parser)


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    find = scope_finder(args, place)
    if args.hunk or args.patch:
        return _hunks(args, context, find)

    def act(choice: Choice) -> Outcome:
        if find is not None:
            return undo_scope(place, find, choice)
        return undo_command(place, args.id, choice)

    try:
        outcome = deciding_branches(context, choice_of(args, place), act)
    except NotFoundError as error:
        if args.id is None or not is_in_workspace(place, args.id):
            raise
        raise NotFoundError(
            error.message,
            hint=f"for a file of the last command: substrate undo --path {quote(args.id)}",
        ) from None
    return show_reversal(context.output, outcome, dry_run=args.dry_run)


def _hunks(args: Namespace, context: Context, find: Find | None) -> int:
    """Take back some hunks; what is chosen stays chosen if another command runs meanwhile."""
    place = place_of(context)
    if args.with_git:
        raise UsageError("--with-git does not go with hunks", hint="leave it out")
    choice = choice_of(args, place)
    with place.existing_history() as store, store.rehearsing("undo"):
        scope = find(store) if find else scope_to_undo(place, store, args.id)
        found = queries.scope_diff(store, scope, choice.paths, hunks=args.patch)
    picked: dict[str, tuple[bytes, ...] | None] = dict.fromkeys(args.hunk or ())
    if args.patch:
        picked = choose_hunks(context, found.hunks if found else [])
        if not picked:
            context.output.line("nothing was chosen: nothing was changed")
            return EXIT_OK
    outcome = undo_hunks(place, lambda _: scope, picked, choice)
    return show_reversal(context.output, outcome, dry_run=args.dry_run)
