"""List what was recorded, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import entry_json, paths_of, place_of, when
from substrate.cli.text import width
from substrate.errors import EXIT_OK, DamagedStoreError, UsageError
from substrate.recorder import ask

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.cli.output import Output, Piece
    from substrate.history.ledger import Entry
    from substrate.history.store import HistoryStore

NAME = "log"
HELP = "list the recorded commands, newest first"
EXAMPLE = "substrate log --limit 10 --path src"

_DEFAULT_LIMIT = 50
#: A line of JSON names at most this many files; `diff` names all.
_SHOWN_FILES = 1000
#: Outcomes that a reader of the list should see.
_UNUSUAL = ("interrupted", "killed", "not_started", "timed_out")
#: Columns.
_ROOM_FOR_WHAT = 16
#: Entries that no command made, in words.
_WITHOUT_COMMAND = {"baseline": "the files as first found", "external": "changed outside Substrate"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=_DEFAULT_LIMIT, metavar="N",
        help=f"at most N entries (default {_DEFAULT_LIMIT}, 0: all)",
    )  # fmt: skip
    parser.add_argument(
        "--path", action="append", metavar="P", help="only what changed P or something below it"
    )


def run(args: Namespace, context: Context) -> int:
    if args.limit < 0:
        raise UsageError("--limit takes a number of 0 or more", hint="--limit 0 shows all")
    place = place_of(context)
    with place.existing_history() as store:
        entries = ask.log_entries(
            store, session=context.session, limit=args.limit, paths=paths_of(place, args.path)
        )
        if context.json:
            commands = [_json(store, entry) for entry in entries]
            context.output.emit_json({"commands": commands})
            return EXIT_OK
        waiting = ask.waiting_commands(store)
        marked = [(entry, _marks(store, entry, waiting)) for entry in entries]
    if not entries:
        context.output.line("nothing is recorded here" + (" for that" if args.path else " yet"))
        return EXIT_OK
    rows: list[list[Piece]] = [["when (UTC)", "id", "session", "exit", "files", "what"]]
    rows += [_row(entry, marks) for entry, marks in marked]
    header, *rows = _fitting(rows, context.output)
    numbers = [at for at, name in enumerate(header) if name in ("exit", "files")]
    context.output.table(rows, header=[str(name) for name in header], right=numbers)
    return EXIT_OK


def _fitting(rows: list[list[Piece]], output: Output) -> list[list[Piece]]:
    """On a narrow terminal what was run matters more than in which session, when, and so on."""
    if not output.is_narrow:
        return rows
    for name in ("session", "when (UTC)", "files", "exit"):
        taken = [max(width(_text(row[at])) for row in rows) + 2 for at in range(len(rows[0]) - 1)]
        if name == "session" or sum(taken) + _ROOM_FOR_WHAT > output.columns:
            at = rows[0].index(name)
            rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    return rows


def _text(piece: Piece) -> str:
    return piece.text if isinstance(piece, Styled) else piece


def _json(store: HistoryStore, entry: Entry) -> dict[str, object]:
    """An entry whose objects are damaged says so, and hides no other."""
    try:
        return entry_json(entry, ask.changed_files(store, entry)[:_SHOWN_FILES])
    except DamagedStoreError as error:
        return {**entry_json(entry, ()), "damaged": error.message}


def _marks(store: HistoryStore, entry: Entry, waiting: set[str]) -> list[str]:
    """What the exit status does not say."""
    marks = []
    if "part" in entry.detail:
        marks.append(f"part {entry.detail['part']} of {entry.detail['of']}")
    outcome = str(entry.detail.get("outcome", ""))
    if outcome in _UNUSUAL:
        marks.append(outcome.replace("_", " "))
    if entry.command_id in waiting:
        marks.append("not applied")
    if "conflicts" in entry.detail:
        marks.append("conflict")
    if b"" in store.ledger.reversed_paths(entry.seq):
        marks.append("undone")
    return marks


def _row(entry: Entry, marks: list[str]) -> list[Piece]:
    exit_text = "" if entry.exit is None else str(entry.exit)
    failed = entry.exit not in (None, 0)
    what = _WITHOUT_COMMAND.get(entry.kind) or entry.command.split("\n", 1)[0]
    if marks:  # in front: a long command is cut at its end
        what = f"({', '.join(marks)})  {what}"
    return [
        when(entry.ts_ns),
        Styled(entry.command_id, "cyan"),
        entry.session_id or "-",
        Styled(exit_text, "red") if failed else exit_text,
        str(entry.changed_files) if entry.commit or entry.changed_files else "",
        what if entry.kind == "command" else Styled(f"[{entry.kind}] {what}", "dim"),
    ]
