"""Held worlds for people and as JSON: what a world would change, and what was done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled, hunk_json, show_hunk
from substrate.cli.render.entry_render import node_json
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.model import display, hold_causes_json, hold_words, name_fields
from substrate.system import clock

if TYPE_CHECKING:
    from substrate.cli.frame import Context
    from substrate.model import RelPath
    from substrate.recorder import FileChange, Held
    from substrate.recorder.arrival import Brought, WorldDiff

_SIGNS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


def world_json(world: Held) -> dict[str, object]:
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
        "discarded_paths": [display(path) for path in world.parts.discarded],
    }


def world_diff_json(found: WorldDiff, *, hunks: bool) -> dict[str, object]:
    return {
        **world_json(found.world),
        "files": [
            {**name_fields(f.path), "change": f.change, "binary": f.binary,
             "additions": f.additions, "deletions": f.deletions,
             "old": node_json(f.old), "new": node_json(f.new)}
            for f in found.files
        ],
        "excluded": [display(one.path) for one in found.layer.entries if one.beyond],
        "left_out": [display(one.path) for one in found.layer.left_out],
        "runs_code": [display(path) for path in found.runs_code],
        **({"hunks": [{**name_fields(h.path), **hunk_json(h)} for h in found.hunks]}
           if hunks else {}),
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


def show_world_diff(context: Context, found: WorldDiff, *, stat: bool, hunks: bool) -> None:
    output = context.output
    for path in found.runs_code:
        output.note(f"makes other programs run code: {display(path)}")
    for one in found.layer.left_out:
        output.note(f"{display(one.path)}: {one.reason}")
    beyond = sum(one.beyond for one in found.layer.entries)
    if beyond:
        output.note(f"and {beyond} path(s) that history leaves out")
    if stat:
        output.table([file_row(change) for change in found.files])
    elif hunks:
        for hunk in found.hunks:
            show_hunk(output, hunk)
    else:
        output.diff(found.text)
    _note_discarded(context, found.world)
    _show_foreseen(context, found)


def _note_discarded(context: Context, world: Held) -> None:
    if world.parts.discarded and world.state != "discarded":
        names = " ".join(map(display, world.parts.discarded))
        context.output.note(
            f"discarded from it: {names}; bring it back with"
            f" `substrate world apply {world.world_id} {names}`"
        )


def _show_foreseen(context: Context, found: WorldDiff) -> None:
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


def file_row(change: FileChange) -> tuple[str, str, str]:
    amount = "binary" if change.binary else f"+{change.additions} -{change.deletions}"
    return _SIGNS[change.change], amount, display(change.path)


def show_applied(context: Context, world: Held, brought: Brought) -> int:
    """Returns the exit status: 1 if something of it did not arrive."""
    conflicts = [display(path) for path in brought.conflicts]
    output = context.output
    if context.json:
        output.emit_json(applied_json(world, brought))
        return EXIT_DIFFERENT if conflicts or brought.causes else EXIT_OK
    for note in brought.with_version:
        output.note(note)
    if brought.causes:
        again = "; apply it again to take the world's" if brought.is_refused_once else ""
        output.note(f"{world.world_id} is still held: {brought.held}{again}")
        return EXIT_DIFFERENT
    part = "a part of " if brought.rest else ""
    output.line(
        Styled(f"applied {part}{world.world_id}", "bold"),
        f": {brought.entry.changed_files} file(s) changed; take it back with ",
        Styled(f"substrate undo {brought.entry.command_id}", "cyan"),
    )  # fmt: skip
    if brought.rest:
        diff = f"substrate world diff {world.world_id}"
        output.line(f"the rest is still {brought.rest}: ", Styled(diff, "cyan"))
    return EXIT_DIFFERENT if conflicts else EXIT_OK


def applied_json(world: Held, brought: Brought) -> dict[str, object]:
    commit = brought.entry.commit
    conflicts = [display(path) for path in brought.conflicts]
    return {
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
        "rest": brought.rest or None,
    }


def show_discarded(context: Context, world: Held, paths: tuple[RelPath, ...]) -> int:
    is_kept = world.directory is not None
    names = [display(path) for path in paths]
    if context.json:
        document = {"world_id": world.world_id, "discarded": True, "recoverable": is_kept}
        context.output.emit_json({**document, "paths": names} if names else document)
        return EXIT_OK
    if not is_kept:
        context.output.line(Styled(f"removed {world.world_id}", "bold"), " for good")
        return EXIT_OK
    what = f"{', '.join(names)} of {world.world_id}" if names else world.world_id
    back = " ".join([f"substrate world apply {world.world_id}", *names])
    context.output.line(
        Styled(f"discarded {what}", "bold"), "; bring it back with ", Styled(back, "cyan")
    )
    if not names:
        context.output.note(
            "it is kept as long as the trash; discard it again to remove it at once"
        )
    return EXIT_OK
