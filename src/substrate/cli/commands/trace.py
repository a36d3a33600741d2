"""Read the trace: one line per event."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK, UsageError
from substrate.recorder import TraceFollower, TraceReader
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from substrate.cli.frame import Context

NAME = "trace"
HELP = "read the trace of commands, also while it grows"
EXAMPLE = "substrate trace --follow --since 2026-01-31T00:00:00Z"

Span = dict[str, object]

_POLL_S = 0.2


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--since", metavar="T", help="only events at or after this time (RFC 3339)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the last N events")
    parser.add_argument(
        "--follow", action="store_true", help="go on with what is written from now on, until Ctrl-C"
    )


def run(args: Namespace, context: Context) -> int:
    if args.limit is not None and args.limit < 0:
        raise UsageError("--limit takes a number of events", hint="leave it out for all of them")
    wanted = _Wanted(context.session or None, _since(args.since))
    if args.follow:
        return _follow(context, wanted, args.limit)
    reader = TraceReader(context.environment.trace_path)
    spans = _last(wanted.of(reader.spans()), args.limit)
    if context.json:
        context.output.emit_json({"spans": spans})
    else:
        context.output.table([_row(span) for span in spans], spare=(1, 0))
    if reader.skipped:
        context.output.note(f"{reader.skipped} unreadable lines were left out")
    return EXIT_OK


def _follow(context: Context, wanted: _Wanted, limit: int | None) -> int:
    """Show the existing spans, then new ones as they arrive. With `--json`, one line for each
    span: an endless stream cannot be one document."""
    with TraceFollower(context.environment.trace_path) as follower:
        for span in _last(wanted.of(follower.new_spans()), limit):
            _show(context, span)
        while True:
            context.output.flush()
            clock.sleep(_POLL_S)
            for span in wanted.of(follower.new_spans()):
                _show(context, span)


class _Wanted:
    """Which spans the user asked for."""

    def __init__(self, session: str | None, since_ns: int | None) -> None:
        self._session = session
        # All times have the same format, so comparing their texts compares the times.
        self._since = "" if since_ns is None else clock.iso(since_ns)

    def of(self, spans: Iterable[Span]) -> Iterator[Span]:
        for span in spans:
            if self._session is not None and span.get("session_id") != self._session:
                continue
            if not self._since or str(span.get("ts", "")) >= self._since:
                yield span


def _last(spans: Iterable[Span], limit: int | None) -> list[Span]:
    return list(spans) if limit is None else list(deque(spans, limit))


def _show(context: Context, span: Span) -> None:
    if context.json:
        context.output.emit_json_line(span)
    else:
        context.output.line("  ".join(_row(span)))


def _row(span: Span) -> tuple[str, ...]:
    return (
        str(span.get("ts", "")),
        str(span.get("event_type", "")),
        str(span.get("command_id", "")),
        "" if span.get("exit") is None else str(span["exit"]),
        str(span.get("command", "")).split("\n", 1)[0],
    )


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
