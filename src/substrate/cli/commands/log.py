"""List what was recorded, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import entry_json, paths_of, place_of, when
from substrate.cli.typed import typed
from substrate.errors import EXIT_OK, DamagedStoreError, UsageError
from substrate.recorder import ask

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.cli.output import Piece
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
    names = ["when (UTC)", "id", "session", "exit", "files", "what"]
    rows = [_row(entry, marks) for entry, marks in marked]
    if context.output.is_narrow:  # what was run matters more than in which session
        names, rows = [*names[:2], *names[3:]], [[*row[:2], *row[3:]] for row in rows]
    numbers = [names.index("exit"), names.index("files")]
    spare = [names.index(name) for name in ("when (UTC)", "files", "exit")]
    context.output.table(rows, header=names, right=numbers, spare=spare)
    return EXIT_OK


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
    what = _WITHOUT_COMMAND.get(entry.kind) or typed(entry.command).split("\n", 1)[0]
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
