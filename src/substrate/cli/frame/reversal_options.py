"""The options that undo, redo and rollback share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from substrate.cli.render import paths_of
from substrate.errors import MovedBranchesError
from substrate.recorder import Branches, Choice, Take

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from substrate.cli.frame.context import Context
    from substrate.recorder import Outcome, Place


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
    parser.add_argument(
        "--plan", metavar="PLAN_ID",
        help="only if the plan is still this one; `--dry-run --json` shows its plan_id",
    )  # fmt: skip


def add_git_options(parser: ArgumentParser, *, files_only: bool = True) -> None:
    """`files_only`: add the option that leaves branches alone (a rollback always does)."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--with-git", action="store_true",
        help="also move the branches and HEAD of your git repository back",
    )  # fmt: skip
    if files_only:
        which.add_argument(
            "--files-only", action="store_true",
            help="of a command that moved branches: take back the files, leave the branches",
        )  # fmt: skip


def choice_of(args: Namespace, place: Place) -> Choice:
    return Choice(
        paths=paths_of(place, args.path),
        take=Take(args.take) if args.take else None,
        skip_conflicts=args.skip_conflicts,
        dry_run=args.dry_run,
        branches=_branches(args),
        expected=args.plan,
    )


def _branches(args: Namespace) -> Branches | None:
    if args.with_git:
        return Branches.WITH
    return Branches.STAY if getattr(args, "files_only", False) else None


def deciding_branches(
    context: Context, choice: Choice, act: Callable[[Choice], Outcome]
) -> Outcome | None:
    """Run it; on a terminal, ask what to do with moved branches if needed. None: cancelled."""
    try:
        return act(choice)
    except MovedBranchesError as error:
        if not (sys.stdin.isatty() and context.output.is_terminal) or context.json:
            raise
        branches = _ask(context, error)
        return None if branches is None else act(choice._replace(branches=branches))


def _ask(context: Context, error: MovedBranchesError) -> Branches | None:
    ways = {"f": Branches.STAY}
    both = ""
    if error.can_move:
        ways["b"] = Branches.WITH
        both = "[b] files and branches / "
    context.output.line(error.fact)
    if not error.can_move:
        context.output.line(error.hint)
    context.output.line(f"Take back {both}[f] files only / [c] cancel? ")
    context.output.flush()
    return ways.get(sys.stdin.readline().strip().lower()[:1])
