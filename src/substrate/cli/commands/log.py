"""List what was recorded, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from substrate.cli.frame import Styled
from substrate.cli.render import (
    command_line,
    entry_json,
    marks_of,
    moved_refs,
    paths_of,
    place_of,
    when,
)
from substrate.errors import EXIT_OK, DamagedStoreError, UsageError
from substrate.model import display
from substrate.recorder import queries

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from substrate.cli.frame import Context, Piece
    from substrate.recorder import Entry, HistoryStore, Prompt

NAME = "log"
HELP = "list the recorded commands, newest first"
EXAMPLE = "substrate log --limit 10 --path src"

_DEFAULT_LIMIT = 50
#: A JSON entry names at most this many files; `diff` names all.
_SHOWN_FILES = 1000
#: The tree on a terminal names this many files of each entry.
_TREE_FILES = 5


class Listed(NamedTuple):
    entry: Entry
    marks: list[str]
    #: What happened, in one line.
    what: str


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=_DEFAULT_LIMIT, metavar="N",
        help=f"at most N entries (default {_DEFAULT_LIMIT}, 0: all)",
    )  # fmt: skip
    parser.add_argument(
        "--path", action="append", metavar="P", help="only what changed P or something below it"
    )
    parser.add_argument(
        "--grep", default="", metavar="TEXT",
        help="only those with TEXT, in any case, in the command or in its prompt",
    )  # fmt: skip
    parser.add_argument(
        "--flat", action="store_true",
        help="one table; on a terminal, commands are otherwise listed below their prompts",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    if args.limit < 0:
        raise UsageError("--limit takes a number of 0 or more", hint="--limit 0 shows all")
    place = place_of(context)
    with place.existing_history() as store:
        entries = queries.log_entries(
            store, session=context.session, limit=args.limit, paths=paths_of(place, args.path),
            text=args.grep,
        )  # fmt: skip
        waiting = queries.waiting_commands(store)
        if context.json:
            commands = [_json(store, entry, waiting) for entry in entries]
            context.output.emit_json({"commands": commands})
            return EXIT_OK
        listed = [
            Listed(entry, marks_of(store, entry, waiting), _what(store, entry)) for entry in entries
        ]
        prompts = queries.prompts_of(store, entries)
        if prompts and context.output.is_terminal and not args.flat:
            _tree(store, listed, prompts, context)
            return EXIT_OK
    if not entries:
        paths = " or ".join(args.path or ())
        none = f"no recorded command touched {paths}" if paths else "nothing is recorded here yet"
        none = f"no recorded command has {args.grep!r}" if args.grep else none
        context.output.line(none)
        return EXIT_OK
    names = ["when (UTC)", "id", "session", "exit", "files", "what"]
    rows = [_row(one) for one in listed]
    if context.output.is_narrow:  # the command matters more than the session
        names, rows = [*names[:2], *names[3:]], [[*row[:2], *row[3:]] for row in rows]
    numbers = [names.index("exit"), names.index("files")]
    spare = [names.index(name) for name in ("when (UTC)", "files", "exit")]
    context.output.table(rows, header=names, right=numbers, spare=spare)
    return EXIT_OK


def _tree(
    store: HistoryStore,
    listed: list[Listed],
    prompts: Mapping[str, Prompt],
    context: Context,
) -> None:
    """Prompt ▸ command ▸ files, newest first."""
    above = None
    for one in listed:
        entry = one.entry
        prompt = prompts.get(entry.command_id)
        if prompt is not None and (above is None or prompt.prompt_id != above.prompt_id):
            about = " ".join(text for text in (entry.agent_id, prompt.model) if text)
            asked = " ".join(prompt.text.split()) or "(its text was not reported)"
            context.output.cut_line(
                Styled(prompt.prompt_id, "cyan"), f"  {when(prompt.started_ns)}  ",
                Styled(asked, "bold"), f"  ({about})" if about else "",
            )  # fmt: skip
        above = prompt
        indent = "" if prompt is None else "  ▸ "
        row = _row(one)
        exit_text = ["  exit ", row[3]] if entry.exit not in (None, 0) else []
        context.output.cut_line(indent, row[1], *exit_text, "  ", row[5])
        _files(store, entry, context, indent="    " if prompt is None else "      ")


def _files(store: HistoryStore, entry: Entry, context: Context, indent: str) -> None:
    if entry.kind == "baseline" or entry.commit is None:
        return
    try:
        names = queries.changed_files(store, entry)
    except DamagedStoreError as error:
        context.output.cut_line(indent, error.message)
        return
    for path in names[:_TREE_FILES]:
        context.output.cut_line(indent, display(path))
    if len(names) > _TREE_FILES:
        context.output.line(f"{indent}… and {len(names) - _TREE_FILES} more")


def _json(store: HistoryStore, entry: Entry, waiting: Mapping[str, str]) -> dict[str, object]:
    """The entry as JSON; damaged objects are reported in it, so other entries still show."""
    more: dict[str, object] = {}
    marks, refs = marks_of(store, entry, waiting), moved_refs(entry.detail.get("git"))
    if marks:
        more["marks"] = marks
    if refs:
        more["moved_refs"] = refs
    try:
        return {**entry_json(entry, queries.changed_files(store, entry)[:_SHOWN_FILES]), **more}
    except DamagedStoreError as error:
        return {**entry_json(entry, ()), **more, "damaged": error.message}


def _what(store: HistoryStore, entry: Entry) -> str:
    """The command's text; for the undo of one command, that command's as well."""
    text = command_line(entry)
    if entry.kind not in ("undo", "redo"):
        return text
    behind = queries.commands_behind(store, [entry])
    return f"{text}  {command_line(behind[0])}" if len(behind) == 1 else text


def _row(listed: Listed) -> list[Piece]:
    entry, marks, what = listed
    exit_text = "" if entry.exit is None else str(entry.exit)
    failed = entry.exit not in (None, 0)
    if marks:  # in front, because a long command is cut at its end
        what = f"({', '.join(marks)})  {what}"
    return [
        when(entry.ts_ns),
        Styled(entry.command_id, "cyan"),
        entry.session_id or "-",
        Styled(exit_text, "red") if failed else exit_text,
        str(entry.changed_files) if entry.commit or entry.changed_files else "",
        what if entry.kind in ("command", "edit") else Styled(f"[{entry.kind}] {what}", "dim"),
    ]
