"""What Substrate knows of this place, what it leaves out, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import place_of
from substrate.cli.typed import typed
from substrate.errors import EXIT_OK
from substrate.model.paths import display
from substrate.recorder.care import Status, status

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "status"
HELP = "say what is recorded here, what is left out, and why"
EXAMPLE = "substrate status"

_SHOWN = 20
#: Any other answer is the reason why there is none.
_PLAIN = ("kept", "not begun")


def configure(parser: ArgumentParser) -> None:
    del parser  # nothing of its own


def run(args: Namespace, context: Context) -> int:
    del args
    found = status(place_of(context))
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
        "cannot_promise": found.cannot_promise,
        "running": list(found.running),
        "worlds": [{"world_id": w.world_id, "state": w.state} for w in found.worlds],
        "outside_changes": [display(path) for path in found.outside_changes],
        "rules": [{"source": source, "rule": rule} for source, rule in found.rules],
        "excluded": [{"path": display(p), "reason": why} for p, why in found.excluded],
        "unreadable": [{"path": display(p), "reason": w} for p, w in found.unreadable],
        "specials": [display(path) for path in found.specials],
    }


def _for_people(found: Status, context: Context) -> None:
    out = context.output
    out.table(
        [
            ("workspace", str(found.workspace)),
            ("history", found.history if found.history in _PLAIN else f"not kept: {found.history}"),
            ("session", found.session_id or _none_open(found)),
            ("agent", found.agent_id),
            ("strategy", found.strategy + (f": {why}" if (why := found.cannot_promise) else "")),
        ],
        whole=True,
    )
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
