"""Read the trace: one line per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_OK, UsageError
from substrate.trace.reader import TraceReader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "trace"
HELP = "read the trace of commands"
EXAMPLE = "substrate trace --since 2026-01-31T00:00:00Z"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--since", metavar="T", help="only events at or after this time (RFC 3339)")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    reader = TraceReader(place.environment.trace_path)
    spans = list(reader.spans(session=context.session, since_ns=_since(args.since)))
    if context.json:
        context.output.emit_json({"spans": spans})
        return EXIT_OK
    rows = [
        (
            str(span.get("ts", "")),
            str(span.get("event_type", "")),
            str(span.get("command_id", "")),
            "" if span.get("exit") is None else str(span["exit"]),
            str(span.get("command", "")).split("\n", 1)[0],
        )
        for span in spans
    ]
    context.output.table(rows)
    return EXIT_OK


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a time: {text!r}", hint="e.g. 2026-01-31T08:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000) * 1000
