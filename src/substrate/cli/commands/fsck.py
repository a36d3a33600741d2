"""Check the history store, and repair it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of
from substrate.errors import EXIT_DAMAGED, EXIT_DIFFERENT, EXIT_OK
from substrate.recorder import check_store, find, finish_all, repair_store

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Problem

NAME = "fsck"
HELP = "check every object, ref and entry of history"
EXAMPLE = "substrate fsck --repair"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--repair", action="store_true",
        help="mend it: a damaged store goes into quarantine, what is readable is kept",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="with --repair: say what is wrong, mend nothing"
    )


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    if not args.repair or args.dry_run:
        cut_off = "interrupted" in context.output.fields
        problems = [] if cut_off and _has_no_store(context) else check_store(place)
        if context.json:
            sound = not problems and not cut_off
            context.output.emit_json({"ok": sound, "problems": _json(problems)})
        elif problems:
            _list(context, problems)
            context.output.note(
                "`substrate fsck --repair` mends it: refs and permissions from the ledger or, where"
                " that is not enough, all that is readable in a new store, the old one kept in"
                " quarantine; the workspace stays untouched"
            )
        elif cut_off:
            context.output.line("nothing is damaged, but an operation was interrupted")
        else:
            context.output.line(Styled("the history is sound", "green"))
        return EXIT_DAMAGED if problems else EXIT_DIFFERENT if cut_off else EXIT_OK
    if _has_no_store(context) and find(place):  # a rewrite needs no history
        finish_all(place)
        if context.json:
            context.output.emit_json({"extent": "nothing", "problems": []})
        return EXIT_OK
    done = repair_store(place)
    finish_all(place)
    if context.json:
        context.output.emit_json(
            {
                "extent": done.extent,
                "problems": _json(done.problems),
                "quarantine": str(done.quarantine) if done.quarantine else None,
                "kept": done.carried.kept if done.carried else None,
                "lost": done.carried.lost if done.carried else None,
            }
        )
        return EXIT_OK
    if done.extent == "nothing":
        context.output.line(Styled("the history is sound; nothing to mend", "green"))
        return EXIT_OK
    if done.extent == "objects":
        context.output.line("mended: lost objects were written again, nothing is lost")
        return EXIT_OK
    _list(context, done.problems)
    if done.carried is None:
        context.output.line("mended: refs and permissions were written again, nothing is lost")
        return EXIT_OK
    context.output.line(
        f"mended: {len(done.carried.kept)} entries kept, {len(done.carried.lost)} lost;"
        " the present state of the workspace is recorded"
    )
    context.output.line(f"the damaged store is kept in {done.quarantine}")
    return EXIT_OK


def _has_no_store(context: Context) -> bool:
    return not place_of(context).workspace.store.is_dir()


def _json(problems: list[Problem]) -> list[dict[str, object]]:
    return [{"what": p.what, "breaks": list(p.breaks)} for p in problems]


def _list(context: Context, problems: list[Problem]) -> None:
    for problem in problems:
        breaks = f"  (breaks {', '.join(problem.breaks)})" if problem.breaks else ""
        context.output.line(Styled("damaged", "red"), f"  {problem.what}{breaks}")
