"""Held worlds: changes of a command that are not applied yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled, name_fields
from substrate.cli.render import node_json, paths_of, place_of, when
from substrate.coding_agents import typed
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.model import display, hold_causes_json, hold_words
from substrate.recorder.arrival import held_worlds
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import FileChange, Held
    from substrate.recorder.arrival import WorldDiff

NAME = "world"
HELP = "held and crashed worlds: list, diff, apply, discard"
EXAMPLE = "substrate world list"

#: Which actions use an option.
_OPTIONS = {
    "stat": ("diff", "apply", "discard"),
    "dry_run": ("apply", "discard"),
    "discarded": ("list",),
}
_SIGNS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("list", "diff", "apply", "discard"), metavar="list|diff|apply|discard",
        help="what to do",
    )  # fmt: skip
    parser.add_argument("id", nargs="?", metavar="ID", help="a world, or the command it came from")
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="diff: only these")
    parser.add_argument("--stat", action="store_true", help="diff: a line per file")
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
    if args.action == "diff" or args.dry_run:
        return _diff(args, context)
    return _apply(args, context) if args.action == "apply" else _discard(args, context)


def _refuse_surplus(args: Namespace) -> None:
    """Refuse unused arguments: the user would expect them to limit what is applied or discarded."""
    if args.action == "list" and args.id is not None:
        raise UsageError(
            f"unexpected argument: {args.id}", hint="`substrate world list` shows all worlds"
        )
    if args.action in ("apply", "discard") and args.paths:
        raise UsageError(
            f"unexpected argument: {args.paths[0]}: world {args.action} takes the whole world",
            hint=f"`substrate world diff {args.id} {args.paths[0]}` shows a part;"
            f" `substrate world {args.action} {args.id}` takes all of it",
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
        context.output.emit_json({"worlds": [_json(world) for world in found]})
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


def _json(world: Held) -> dict[str, object]:
    return {
        "world_id": world.world_id,
        "state": world.state,
        "reason": hold_words(world.causes),
        "causes": hold_causes_json(world.causes),
        "command_id": world.command_id,
        "session_id": world.session_id,
        "agent_id": world.agent_id,
        "command": world.command,
        "base_commit": world.base_commit.hex(),
        "ts": clock.iso(world.started_ns),
    }


def _diff(args: Namespace, context: Context) -> int:
    place = place_of(context)
    foresee = args.action == "apply"
    found = held_worlds.diff_world(place, args.id, paths_of(place, args.paths), foresee=foresee)
    foreseen = found.foreseen
    status = EXIT_DIFFERENT if foreseen and (foreseen.conflicts or foreseen.causes) else EXIT_OK
    if context.json:
        context.output.emit_json(_diff_json(found))
        return status
    output = context.output
    if args.action == "discard":
        output.note("these changes would be forgotten; nothing was done")
    for path in found.runs_code:
        output.note(f"makes other programs run code: {display(path)}")
    for one in found.layer.left_out:
        output.note(f"{display(one.path)}: {one.reason}")
    beyond = sum(one.beyond for one in found.layer.entries)
    if beyond:
        output.note(f"and {beyond} path(s) that history leaves out")
    if args.stat or args.dry_run:
        output.table([_row(change) for change in found.files])
    else:
        output.diff(found.text)
    _say_foreseen(found, context)
    return status


def _say_foreseen(found: WorldDiff, context: Context) -> None:
    if found.foreseen is None:
        return
    merged, conflicts, causes = found.foreseen
    for path, why in conflicts.items():
        context.output.note(f"would conflict: {display(path)}: {why}")
    if merged:
        names = ", ".join(map(display, merged))
        context.output.note(f"would be merged with what others changed: {names}")
    if causes:
        context.output.note(f"would stay held: {hold_words(causes)}")


def _row(change: FileChange) -> tuple[str, str, str]:
    amount = "binary" if change.binary else f"+{change.additions} -{change.deletions}"
    return _SIGNS[change.change], amount, display(change.path)


def _diff_json(found: WorldDiff) -> dict[str, object]:
    return {
        **_json(found.world),
        "files": [
            {**name_fields(f.path), "change": f.change, "binary": f.binary,
             "additions": f.additions, "deletions": f.deletions,
             "old": node_json(f.old), "new": node_json(f.new)}
            for f in found.files
        ],
        "excluded": [display(one.path) for one in found.layer.entries if one.beyond],
        "left_out": [display(one.path) for one in found.layer.left_out],
        "runs_code": [display(path) for path in found.runs_code],
        **_foreseen_json(found),
    }  # fmt: skip


def _foreseen_json(found: WorldDiff) -> dict[str, object]:
    if found.foreseen is None:
        return {}
    merged, conflicts, causes = found.foreseen
    return {
        "merged": [display(path) for path in merged],
        "conflicts": [display(path) for path in conflicts],
        "would_be_held": hold_words(causes),
        "causes_to_hold": hold_causes_json(causes),
    }


def _apply(args: Namespace, context: Context) -> int:
    world, brought = held_worlds.apply_world(place_of(context), args.id)
    conflicts = [display(path) for path in brought.conflicts]
    if context.json:
        commit = brought.entry.commit
        context.output.emit_json(
            {
                "world_id": world.world_id,
                "command_id": brought.entry.command_id,
                "commit": commit.hex() if commit else None,
                "changed_files": [
                    display(c.path) for c in brought.changes if c.path not in brought.conflicts
                ],
                "conflicts": conflicts,
                "held": brought.held,
                "held_causes": hold_causes_json(brought.causes),
                "recovery_ref": brought.recovery_ref,
            }
        )
        return EXIT_DIFFERENT if conflicts or brought.causes else EXIT_OK
    for note in brought.with_version:
        context.output.note(note)
    if brought.causes:
        again = "; apply it again to take the world's" if brought.is_refused_once else ""
        context.output.note(f"{world.world_id} is still held: {brought.held}{again}")
        return EXIT_DIFFERENT
    count = brought.entry.changed_files
    context.output.line(
        Styled(f"applied {world.world_id}", "bold"),
        f": {count} file(s) changed; take it back with ",
        Styled(f"substrate undo {brought.entry.command_id}", "cyan"),
    )  # fmt: skip
    return EXIT_DIFFERENT if conflicts else EXIT_OK


def _discard(args: Namespace, context: Context) -> int:
    world = held_worlds.discard_world(place_of(context), args.id)
    is_kept = world.directory is not None
    if context.json:
        context.output.emit_json(
            {"world_id": world.world_id, "discarded": True, "recoverable": is_kept}
        )
    elif is_kept:
        context.output.line(
            Styled(f"discarded {world.world_id}", "bold"), "; bring it back with ",
            Styled(f"substrate world apply {world.world_id}", "cyan"),
        )  # fmt: skip
        context.output.note(
            "it is kept as long as the trash; discard it again to remove it at once"
        )
    else:
        context.output.line(Styled(f"removed {world.world_id}", "bold"), " for good")
    return EXIT_OK
