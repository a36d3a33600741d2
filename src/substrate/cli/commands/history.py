"""Restart history, or adopt one that came with a clone or an archive."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from substrate.cli.render import place_of, size
from substrate.errors import EXIT_OK, NotFoundError, RefusedError
from substrate.recorder import adopt_history, disk_bytes, reset_history

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Place

NAME = "history"
HELP = "start history over (the workspace stays as it is)"
EXAMPLE = "substrate history reset --yes"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("reset", "adopt"),
        metavar="reset|adopt",
        help="reset: put the history aside and start a new one; adopt: use one that came with a"
        " clone, a copy or an archive, if you trust it",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, change nothing")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    place.refuse_inside()
    if not place.workspace.store.is_dir():
        raise NotFoundError(
            f"no history in {place.workspace.root}", hint="there is nothing to start over"
        )
    if args.action == "adopt":
        return _adopt(place, args.dry_run, context)
    held = disk_bytes(place.workspace.store)
    if args.dry_run:
        if context.json:
            context.output.emit_json({"dry_run": True, "size_bytes": held})
        else:
            context.output.line(
                f"would put aside {size(held)} of history in {place.workspace.store};"
                " ids printed so far would no longer resolve"
            )
        return EXIT_OK
    if not args.yes and not _confirmed(context):
        raise RefusedError(
            "not confirmed: nothing was changed",
            hint="`substrate history reset --yes` does not ask; --dry-run shows what would go",
        )
    aside = reset_history(place)
    if context.json:
        context.output.emit_json({"put_aside": str(aside), "size_bytes": held})
        return EXIT_OK
    context.output.line("history starts over with the next command; the files are untouched")
    context.output.line(f"the old history is in {aside}: remove it when you are sure")
    return EXIT_OK


def _adopt(place: Place, is_dry_run: bool, context: Context) -> int:
    is_new = adopt_history(place, is_dry_run=is_dry_run)
    if context.json:
        context.output.emit_json({"dry_run": is_dry_run, "adopted": is_new})
    elif is_new:
        verb = "would be" if is_dry_run else "is now"
        context.output.line(f"the history in {place.workspace.store} {verb} yours")
    else:
        context.output.line("nothing to adopt: the history here is already yours")
    return EXIT_OK


def _confirmed(context: Context) -> bool:
    if not (sys.stdin.isatty() and context.output.is_terminal) or context.json:
        return False
    context.output.line("This forgets every recorded command, checkpoint and undo. Type 'reset': ")
    context.output.flush()
    return sys.stdin.readline().strip() == "reset"
