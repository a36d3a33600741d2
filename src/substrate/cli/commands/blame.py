"""Which command wrote each line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import hex_or_none, place_of, when
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder import queries, record_entry
from substrate.recorder.code_graph import symbols_by_line
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from substrate.cli.frame import Context
    from substrate.recorder import BlamedLine, Prompt

NAME = "blame"
HELP = "say which command, prompt, session and agent wrote each line"
EXAMPLE = "substrate blame src/app.py -L 10,20"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file of the workspace")
    parser.add_argument("-L", dest="lines", metavar="A,B", help="only lines A to B (or A alone)")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    path = place.rel_path(args.file)
    with place.existing_history() as store, store.rehearsing("blame"):
        last = store.ledger.last_pos()
        record_entry.record_outside(store)
        # The entry of an edit that is only recorded in this rehearsal has no id that resolves.
        found = [_without_id(line, last) for line in queries.blame(store, path, _range(args.lines))]
        symbols = symbols_by_line(store, path)
        prompts = queries.prompts_of(store, (line.entry for line in found if line.entry))
    if context.json:
        lines = [
            {**_json(line), **_asked(line, prompts), "symbol": symbols.get(line.number)}
            for line in found
        ]
        context.output.emit_json({"lines": lines})
        return EXIT_OK
    rows = [
        (
            line.entry.command_id if line.entry else "-",
            _who(line, prompts),
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


def _without_id(line: BlamedLine, last_pos: int) -> BlamedLine:
    is_recorded = line.entry is None or line.entry.pos <= last_pos
    return line if is_recorded else line._replace(entry=None)


def _asked(line: BlamedLine, prompts: Mapping[str, Prompt]) -> dict[str, object]:
    """The prompt behind a line, and the model that answered it."""
    prompt = prompts.get(line.entry.command_id) if line.entry else None
    return {
        "prompt_id": prompt.prompt_id if prompt else None,
        "model": prompt.model if prompt else None,
    }


def _who(line: BlamedLine, prompts: Mapping[str, Prompt]) -> str:
    if line.author is None:
        return "-"
    if line.author.kind in ("baseline", "external"):
        return f"({line.author.kind})"
    prompt = prompts.get(line.entry.command_id) if line.entry else None
    asked = [prompt.prompt_id, prompt.model or ""] if prompt else [line.author.session_id or "-"]
    return " ".join([*asked, line.author.agent_id or ""]).strip()


def _json(line: BlamedLine) -> dict[str, object]:
    entry, author = line.entry, line.author
    return {
        "line": line.number,
        "text": line.text.decode("utf-8", "replace"),
        "command_id": entry.command_id if entry else None,
        "session_id": author.session_id if author else None,
        "agent_id": author.agent_id if author else None,
        "kind": author.kind if author else None,
        "squashed": entry.kind == "squash" if entry else None,
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
