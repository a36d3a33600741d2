"""Attempts beside each other: a column for each world, a row for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render.entry_render import size
from substrate.cli.render.world_render import applied_json, file_row, show_applied, world_json
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.model import ABSENT, display, name_fields

if TYPE_CHECKING:
    from substrate.cli.frame import Context
    from substrate.model import RelPath
    from substrate.recorder import FileChange, Held
    from substrate.recorder.arrival import Attempt, Brought


def attempt_json(one: Attempt) -> dict[str, object]:
    files = one.diff.files
    return {
        **world_json(one.world),
        "group": one.world.group or None,
        "attempt": one.number,
        "exit": one.exit,
        "duration_ms": one.duration_ms,
        "check": one.check,
        "size_bytes": one.diff.size_bytes,
        "additions": sum(f.additions for f in files),
        "deletions": sum(f.deletions for f in files),
        "files": [
            {**name_fields(f.path), "change": f.change, "binary": f.binary,
             "additions": f.additions, "deletions": f.deletions}
            for f in files
        ],
    }  # fmt: skip


def show_compared(context: Context, found: list[Attempt]) -> None:
    paths = sorted({one.path for attempt in found for one in attempt.diff.files})
    if context.json:
        same = [p for p in paths if _is_same(found, p)]
        context.output.emit_json(
            {
                "worlds": [attempt_json(one) for one in found],
                "same": [display(path) for path in same],
                "differ": [display(path) for path in paths if path not in same],
            }
        )
        return
    header = ("", *(one.world.world_id for one in found))
    rows = [
        *([("attempt", *(str(one.number or "-") for one in found))]
          if any(one.number for one in found) else []),
        ("exit", *("-" if one.exit is None else str(one.exit) for one in found)),
        ("check", *(_check(one) for one in found)),
        ("took", *("-" if one.duration_ms is None else f"{one.duration_ms} ms" for one in found)),
        ("files", *(str(len(one.diff.files)) for one in found)),
        ("lines", *(_lines(one) for one in found)),
        ("size", *(size(one.diff.size_bytes) for one in found)),
        *((display(path), *_cells(found, path)) for path in paths),
    ]  # fmt: skip
    context.output.table(rows, header=header)


def _is_same(found: list[Attempt], path: RelPath) -> bool:
    return len({one.node(path) for one in found}) == 1


def _cells(found: list[Attempt], path: RelPath) -> list[str]:
    """How each attempt changes the file; after the first, ``same`` if it does what that did."""
    first = found[0].node(path)
    cells = [_cell(found[0], path)]
    for one in found[1:]:
        is_same = one.node(path) == first and first is not None
        cells.append("same" if is_same else _cell(one, path))
    return cells


def _cell(one: Attempt, path: RelPath) -> str:
    change: FileChange | None = next((f for f in one.diff.files if f.path == path), None)
    if change is None:
        return "-"
    return " ".join(file_row(change)[:2]) if change.new != ABSENT else "deleted"


def _check(one: Attempt) -> str:
    if one.check is None:
        return "-"
    return "passed" if one.check.get("passed") else f"failed ({one.check.get('exit')})"


def _lines(one: Attempt) -> str:
    files = one.diff.files
    return f"+{sum(f.additions for f in files)} -{sum(f.deletions for f in files)}"


def show_picked(context: Context, world: Held, brought: Brought, discarded: list[Held]) -> int:
    if context.json:
        gone = [one.world_id for one in discarded]
        context.output.emit_json({**applied_json(world, brought), "discarded": gone})
        return EXIT_DIFFERENT if brought.conflicts or brought.causes else EXIT_OK
    status = show_applied(context, world, brought)
    for one in discarded:
        again = Styled(f"substrate world apply {one.world_id}", "cyan")
        context.output.line(f"discarded {one.world_id}; bring it back with ", again)
    if status != EXIT_OK:
        context.output.note("the other attempts are still held")
    return status


def show_tried(context: Context, group: str, statuses: list[int], found: list[Attempt]) -> None:
    """What became of each attempt; `statuses`: their exit statuses, in order."""
    by_number = {one.number: one for one in found}
    if context.json:
        context.output.emit_json(
            {
                "group": group,
                "attempts": [
                    {"attempt": n, "exit": status, "world_id": one.world.world_id if one else None,
                     **({"check": one.check, "files": attempt_json(one)["files"]} if one else {})}
                    for n, status in enumerate(statuses, 1)
                    for one in [by_number.get(n)]
                ],
            }
        )  # fmt: skip
        return
    rows = []
    for n, status in enumerate(statuses, 1):
        one = by_number.get(n)
        more = ("-", "0", "", "(changed nothing)")
        if one is not None:
            more = (_check(one), str(len(one.diff.files)), _lines(one), one.world.world_id)
        rows.append((str(n), str(status), *more))
    context.output.table(rows, header=("attempt", "exit", "check", "files", "lines", "world"))
    if found:
        names = " ".join(one.world.world_id for one in found)
        if len(found) > 1:
            context.output.line("look: ", Styled(f"substrate world compare {names}", "cyan"))
        one_of = found[0].world.world_id
        context.output.line("apply one, discard the others: ",
                            Styled(f"substrate world pick {one_of}", "cyan"))  # fmt: skip
