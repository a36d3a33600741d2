"""Begin, end and list sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of, size, when
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder import WHOLE_COMMANDS, checkpoints, close_session, sessions, start_session
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import HistoryStore, Session

NAME = "session"
HELP = "begin, end and list sessions"
EXAMPLE = "substrate session close"

_ACTIONS = ("start", "close", "list", "current")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=_ACTIONS, metavar="|".join(_ACTIONS),
        help="start: commands go into this one from now on; close: end it; list: all of them;"
        " current: the one that your next command goes into",
    )  # fmt: skip
    parser.add_argument(
        "id", nargs="?", metavar="ID",
        help="start: a name for it (default: a new id); close: which one (default: the current)",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    if args.id == "":
        raise UsageError("the session's id is empty", hint="give a name, or leave it out")
    named = args.id or context.session
    if args.id and args.action in ("list", "current"):
        raise UsageError(
            f"unexpected argument: {args.id}: session {args.action} takes no id",
            hint="`substrate show ID` shows one session",
        )
    if args.action == "start":
        return _say(start_session(place_of(context), named), context, "started")
    if args.action == "close":
        return _close(context, named)
    with place_of(context).existing_history() as store:
        if args.action == "current":
            place = place_of(context)
            current = sessions.current(store, place.session, place.agent_id)
            return _say(current, context, "open" if current.closed_ns is None else "closed")
        return _list(store, context)


def _close(context: Context, named: str | None) -> int:
    session, report = close_session(place_of(context), named)
    if report is not None and not context.json:
        context.output.note(f"compacted: {size(report.size_before)} → {size(report.size_after)}")
        for note in report.notes:
            context.output.note(note)
    return _say(session, context, "closed")


def _say(session: Session, context: Context, state: str) -> int:
    if context.json:
        context.output.emit_json(_fields(session))
    else:
        context.output.line(Styled(session.session_id, "cyan"), f"  {state}")
    return EXIT_OK


def _fields(session: Session) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "started": clock.iso(session.started_ns),
        "closed": clock.iso(session.closed_ns) if session.closed_ns else None,
        "agent_id": session.agent_id,
    }


def _list(store: HistoryStore, context: Context) -> int:
    counts = _commands(store)
    squashed = _commands(store, " AND squashed_into IS NOT NULL")
    marks: dict[str, int] = {}
    for one in checkpoints.of_session(store.ledger):
        marks[one.session_id] = marks.get(one.session_id, 0) + 1
    found = sessions.all_sessions(store.ledger)
    if context.json:
        documents = [
            {**_fields(s), "commands": counts.get(s.session_id, 0),
             "squashed": squashed.get(s.session_id, 0),
             "checkpoints": marks.get(s.session_id, 0)}
            for s in found
        ]  # fmt: skip
        context.output.emit_json({"sessions": documents})
        return EXIT_OK
    rows = [
        (when(s.started_ns), s.session_id, s.agent_id or "-",
         _counted(counts.get(s.session_id, 0), squashed.get(s.session_id, 0)),
         str(marks.get(s.session_id, 0)), when(s.closed_ns) if s.closed_ns else "open")
        for s in found
    ]  # fmt: skip
    header = ("started (UTC)", "session", "agent", "commands", "checkpoints", "closed")
    context.output.table(rows, header=header, right=(3, 4), spare=(0, 4, 2, 3))
    return EXIT_OK


def _commands(store: HistoryStore, where: str = "") -> dict[str, int]:
    """How many commands each session has."""
    rows = store.ledger.db.execute(
        f"SELECT session_id, count(*) AS n FROM entries WHERE {WHOLE_COMMANDS}{where}"
        " GROUP BY session_id"
    )
    return {row["session_id"]: row["n"] for row in rows}


def _counted(commands: int, squashed: int) -> str:
    """How many commands, and how many of them exist only in a squash."""
    return f"{commands} ({squashed} squashed)" if squashed else str(commands)
