"""Which command wrote each line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import hex_or_none, place_of, when
from substrate.errors import EXIT_OK, UsageError
from substrate.history import record
from substrate.recorder import ask
from substrate.recorder.line_symbols import symbols_by_line
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.history.line_blame import BlamedLine

NAME = "blame"
HELP = "say which command, session and agent wrote each line"
EXAMPLE = "substrate blame src/app.py -L 10,20"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file of the workspace")
    parser.add_argument("-L", dest="lines", metavar="A,B", help="only lines A to B (or A alone)")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    path = place.rel_path(args.file)
    with place.existing_history() as store:
        with store.writing("blame"):
            record.record_outside(store)
        found = ask.blame(store, path, _range(args.lines))
        symbols = symbols_by_line(store, path)
    if context.json:
        lines = [{**_json(line), "symbol": symbols.get(line.number)} for line in found]
        context.output.emit_json({"lines": lines})
        return EXIT_OK
    rows = [
        (
            line.entry.command_id if line.entry else "-",
            _who(line),
            when(line.entry.ts_ns) if line.entry else "-",
            *((symbols.get(line.number, ""),) if symbols else ()),
            str(line.number),
            line.text.decode("utf-8", "surrogateescape").expandtabs(8),
        )
        for line in found
    ]
    spare = (2, 1, 3) if symbols else (2, 1)
    context.output.table(rows, right=(4 if symbols else 3,), spare=spare)
    return EXIT_OK


def _who(line: BlamedLine) -> str:
    if line.entry is None:
        return "-"
    if line.entry.kind in ("baseline", "external"):
        return f"({line.entry.kind})"
    return f"{line.entry.session_id or '-'} {line.entry.agent_id or ''}".strip()


def _json(line: BlamedLine) -> dict[str, object]:
    entry = line.entry
    return {
        "line": line.number,
        "text": line.text.decode("utf-8", "replace"),
        "command_id": entry.command_id if entry else None,
        "session_id": entry.session_id if entry else None,
        "agent_id": entry.agent_id if entry else None,
        "kind": entry.kind if entry else None,
        "command": entry.command if entry else None,
        "ts": clock.iso(entry.ts_ns) if entry else None,
        "substrate_git_commit": hex_or_none(entry.commit) if entry else None,
    }


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, comma, last = text.partition(",")
    if not (first.isdigit() and (not comma or last.isdigit())):
        raise UsageError(f"-L takes two line numbers, not {text!r}", hint="e.g. -L 10,20")
    return int(first), int(last) if comma else int(first)
