"""Worlds that wait: what a command did and has not been applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled, name_fields
from substrate.cli.render import node_json, paths_of, place_of, when
from substrate.cli.typed import typed
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.model.paths import display
from substrate.recorder import held_worlds
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.history.file_changes import FileChange
    from substrate.history.held import Held
    from substrate.recorder.held_worlds import WorldDiff

NAME = "world"
HELP = "held and crashed worlds: list, diff, apply, discard"
EXAMPLE = "substrate world list"

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
        "--dry-run", action="store_true", help="apply, discard: only say what would be done"
    )


def run(args: Namespace, context: Context) -> int:
    if args.action == "list":
        return _list(context)
    if args.id is None:
        raise UsageError(
            f"world {args.action} needs the id of a world", hint="`substrate world list` shows them"
        )
    if args.action == "diff" or args.dry_run:
        return _diff(args, context)
    return _apply(args, context) if args.action == "apply" else _discard(args, context)


def _list(context: Context) -> int:
    found = held_worlds.list_worlds(place_of(context))
    if context.json:
        context.output.emit_json({"worlds": [_json(world) for world in found]})
        return EXIT_OK
    if not found:
        context.output.note("no world waits here: `--hold` keeps one")
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
        "reason": world.reason,
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
    status = EXIT_DIFFERENT if foreseen and (foreseen.conflicts or foreseen.held) else EXIT_OK
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
    merged, conflicts, held = found.foreseen
    for path, why in conflicts.items():
        context.output.note(f"would conflict: {display(path)}: {why}")
    if merged:
        names = ", ".join(map(display, merged))
        context.output.note(f"would be merged with what others changed: {names}")
    if held:
        context.output.note(f"would go on waiting: {held}")


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
    merged, conflicts, held = found.foreseen
    return {
        "merged": [display(path) for path in merged],
        "conflicts": [display(path) for path in conflicts],
        "would_be_held": held,
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
                "changed_files": [display(c.path) for c in brought.changes],
                "conflicts": conflicts,
                "held": brought.held,
                "recovery_ref": brought.recovery_ref,
            }
        )
        return EXIT_DIFFERENT if conflicts or brought.held else EXIT_OK
    for note in brought.notes:
        context.output.note(note)
    if brought.held:
        again = "; apply it again to take the world's" if brought.is_refused_once else ""
        context.output.note(f"{world.world_id} still waits: {brought.held}{again}")
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
    if context.json:
        context.output.emit_json({"world_id": world.world_id, "discarded": True})
    else:
        context.output.line(Styled(f"discarded {world.world_id}", "bold"))
    return EXIT_OK
