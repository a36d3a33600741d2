"""What Substrate records here, what it leaves out, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of
from substrate.coding_agents import typed
from substrate.errors import EXIT_OK
from substrate.model import display
from substrate.recorder import Status, accept_outside, disk_cap, status
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "status"
HELP = "say what is recorded here, what is left out, and why"
EXAMPLE = "substrate status"

_SHOWN = 20


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--accept", action="store_true",
        help='record what was edited outside (needed with history.external = "refuse")',
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    if args.accept:
        accepted = accept_outside(place)
        context.output.fields["accepted"] = [display(path) for path in accepted]
        context.output.note(f"recorded as edited outside: {len(accepted)} paths")
    found = status(place)
    if context.json:
        context.output.emit_json(_json(found))
    else:
        _for_people(found, context)
    return EXIT_OK


def _json(found: Status) -> dict[str, object]:
    return {
        "workspace": str(found.workspace),
        "history": found.history,
        "session_id": found.session_id,
        "last_session_id": found.last_session_id,
        "agent_id": found.agent_id,
        "strategy": found.strategy,
        "disk_cap": _cap_json(found),
        "cannot_promise": found.cannot_promise,
        "running": list(found.running),
        "worlds": [{"world_id": w.world_id, "state": w.state} for w in found.worlds],
        "outside_changes": [display(path) for path in found.outside_changes],
        "rules": [{"source": source, "rule": rule} for source, rule in found.rules],
        "excluded": [{"path": display(p), "reason": why} for p, why in found.excluded],
        "unreadable": [{"path": display(p), "reason": w} for p, w in found.unreadable],
        "specials": [display(path) for path in found.specials],
    }


def _cap_json(found: Status) -> dict[str, object] | None:
    if found.cap is None:
        return None
    given_up = found.cap.given_up
    return {
        "cap_bytes": found.cap.cap_bytes,
        "floor_bytes": found.cap.floor_bytes,
        "given_up_entries": given_up.entries,
        "given_up_baseline": given_up.baseline,
        "given_up_at": clock.iso(given_up.ts_ns) if given_up.entries else None,
    }


def _for_people(found: Status, context: Context) -> None:
    out = context.output
    out.table(
        [
            ("workspace", str(found.workspace)),
            ("history", f"not kept: {found.history}" if found.is_refused else found.history),
            ("session", found.session_id or _none_open(found)),
            ("agent", found.agent_id),
            ("strategy", found.strategy + (f": {why}" if (why := found.cannot_promise) else "")),
        ],
        whole=True,
    )
    for sentence in disk_cap.said(found.cap) if found.cap else ():
        out.line(Styled("disk cap", "yellow"), f"  {sentence}")
    for command_id in found.running:
        out.line(Styled("running", "yellow"), f"  {command_id}")
    for world in found.worlds:
        out.line(Styled(world.state, "yellow"), f"  {world.world_id}  {typed(world.command)}")
    if found.outside_changes:
        out.line(f"changed outside since the last record: {len(found.outside_changes)}")
        for path in found.outside_changes[:_SHOWN]:
            out.line("  ", display(path))
    if found.excluded:
        out.line(f"left out of history: {len(found.excluded)}")
        rows = [(display(path), why) for path, why in found.excluded[:_SHOWN]]
        out.table([("  " + name, why) for name, why in rows])
        if len(found.excluded) > _SHOWN:
            out.line(f"  … and {len(found.excluded) - _SHOWN} more")
    for path, why in found.unreadable:
        out.line(Styled("unreadable", "red"), f"  {display(path)}: {why}")
    for path in found.specials:
        out.line(f"  {display(path)}: a special file, known but without content")
    if found.rules:
        out.line("rules:")
    by_source: dict[str, list[str]] = {}
    for source, rule in found.rules:
        by_source.setdefault(source, []).append(rule)
    rows = [("  " + source, ", ".join(rules)) for source, rules in by_source.items()]
    out.table(rows, whole=True)


def _none_open(found: Status) -> str:
    last = found.last_session_id
    return f"none open; {last} was the last" if last else "none yet"
