"""Held worlds: changes of a command that are not applied yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import APPLY, choose_hunks
from substrate.cli.render import (
    paths_of,
    place_of,
    show_applied,
    show_compared,
    show_discarded,
    show_picked,
    show_world_diff,
    when,
    world_diff_json,
    world_json,
)
from substrate.coding_agents import typed
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.recorder.arrival import Selection, attempts, held_worlds

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "world"
HELP = "held and crashed worlds: list, diff, apply, discard, compare, pick"
EXAMPLE = "substrate world apply wld_1m7h src/app.py"

_ACTIONS = ("list", "diff", "apply", "discard", "compare", "pick")
#: Which actions use an option.
_OPTIONS = {
    "stat": ("diff", "apply", "discard"),
    "hunks": ("diff",),
    "hunk": ("apply",),
    "patch": ("apply",),
    "dry_run": ("apply", "discard"),
    "discarded": ("list",),
}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, metavar="|".join(_ACTIONS), help="what to do")
    parser.add_argument("id", nargs="?", metavar="ID", help="a world, or the command it came from")
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="PATH",
        help="diff, apply, discard: only these files or directories; the rest stays held."
        " compare: the other worlds",
    )  # fmt: skip
    parser.add_argument("--stat", action="store_true", help="diff: a line per file")
    parser.add_argument(
        "--hunks", action="store_true", help="diff: hunk by hunk, with ids for `apply --hunk`"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--hunk", action="append", metavar="H", help="apply: only this hunk (repeatable)"
    )
    which.add_argument(
        "-p", "--patch", action="store_true", help="apply: ask hunk by hunk what to apply"
    )
    parser.add_argument(
        "--discarded", action="store_true",
        help="list: those that were discarded and can still be applied",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="apply, discard: only say what would be done"
    )


def run(args: Namespace, context: Context) -> int:
    _refuse_surplus(args)
    if args.action == "list":
        return _list(args, context)
    if args.id is None:
        raise UsageError(
            f"world {args.action} needs the id of a world", hint="`substrate world list` shows them"
        )
    if args.action == "compare":
        return _compare(args, context)
    if args.action == "pick":
        return _pick(args, context)
    if args.action == "discard" and not args.dry_run:
        return _discard(args, context)
    selection: Selection | None = Selection(paths_of(place_of(context), args.paths))
    if args.hunk or args.patch:
        selection = _with_hunks(args, context)
    if selection is None:
        context.output.line("nothing was chosen: nothing was changed")
        return EXIT_OK
    if args.action == "apply" and not args.dry_run:
        world, brought = held_worlds.apply_world(place_of(context), args.id, selection)
        return show_applied(context, world, brought)
    return _diff(args, context, selection)


def _refuse_surplus(args: Namespace) -> None:
    """Refuse unused arguments: the user would expect them to limit what is applied or discarded."""
    if args.action == "list" and args.id is not None:
        raise UsageError(
            f"unexpected argument: {args.id}", hint="`substrate world list` shows all worlds"
        )
    if args.action == "pick" and args.paths:
        raise UsageError(
            f"unexpected argument: {args.paths[0]}",
            hint=f"`substrate world apply {args.id} {args.paths[0]}` applies a part",
        )
    unused = [name for name, actions in _OPTIONS.items() if args.action not in actions]
    for name in unused:
        if getattr(args, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"unexpected option: {option}",
                hint=f"world {' and world '.join(_OPTIONS[name])} take it",
            )


def _list(args: Namespace, context: Context) -> int:
    listed = held_worlds.list_discarded if args.discarded else held_worlds.list_worlds
    found = listed(place_of(context))
    if context.json:
        context.output.emit_json({"worlds": [world_json(world) for world in found]})
        return EXIT_OK
    if not found:
        context.output.note("no held worlds; --hold makes one: substrate -c 'your command' --hold")
        return EXIT_OK
    rows = [
        (w.world_id, w.state, when(w.started_ns), w.command_id, typed(w.command)) for w in found
    ]
    context.output.table(
        rows, header=("world", "state", "since (UTC)", "from", "command"), spare=(3, 2)
    )
    return EXIT_OK


def _diff(args: Namespace, context: Context, selection: Selection) -> int:
    """Also a dry run of `apply` and of `discard`."""
    foresee = args.action == "apply"
    found = held_worlds.diff_world(
        place_of(context), args.id, selection, foresee=foresee, hunks=args.hunks
    )
    foreseen = found.foreseen
    if context.json:
        context.output.emit_json(world_diff_json(found, hunks=args.hunks))
    else:
        if args.action == "discard":
            context.output.note("these changes would be forgotten; nothing was done")
        show_world_diff(context, found, stat=args.stat or args.dry_run, hunks=args.hunks)
    return EXIT_DIFFERENT if foreseen and (foreseen.conflicts or foreseen.causes) else EXIT_OK


def _with_hunks(args: Namespace, context: Context) -> Selection | None:
    """The hunks that the user named or chose; None: none were chosen."""
    place = place_of(context)
    selection = Selection(paths_of(place, args.paths))
    if args.hunk:
        return selection._replace(hunks=dict.fromkeys(args.hunk))
    found = held_worlds.diff_world(place, args.id, selection, hunks=True)
    asking = APPLY._replace(listed_by=f"substrate world diff {found.world.world_id} --hunks")
    picked = choose_hunks(context, found.hunks, asking)
    return selection._replace(hunks=picked) if picked else None


def _discard(args: Namespace, context: Context) -> int:
    place = place_of(context)
    paths = paths_of(place, args.paths)
    if paths:
        return show_discarded(context, held_worlds.discard_parts(place, args.id, paths), paths)
    return show_discarded(context, held_worlds.discard_world(place, args.id), ())


def _compare(args: Namespace, context: Context) -> int:
    if not args.paths:
        raise UsageError(
            "world compare needs at least two worlds", hint="substrate world compare A B"
        )
    found = attempts.attempts(place_of(context), (args.id, *args.paths))
    show_compared(context, found)
    return EXIT_OK


def _pick(args: Namespace, context: Context) -> int:
    world, brought, discarded = attempts.pick(place_of(context), args.id)
    return show_picked(context, world, brought, discarded)
