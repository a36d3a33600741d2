"""Run a recorded command again and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of, scopes_of
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.recorder.packing import MATCHED
from substrate.recorder.replay import ReplayedSpan, ReplayOptions, replay_span

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "replay"
HELP = "run a recorded command again, from the tree it started from, and compare"
EXAMPLE = "substrate replay @ --verbose"

_MORE = """
The command runs in a private copy of the recorded tree: your files stay as they are. Compared are
its exit status, its output where that was kept, and the content of the files it changed.
0: the same; 1: something differs, or it could not be run.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("span", metavar="SPAN", help="a span or command id; @ is the last command")
    parser.add_argument(
        "--verbose",
        "--replay-verbose",
        action="store_true",
        help="the strategy, the scopes it used, what differs in full (on stderr)",
    )
    parser.add_argument(
        "--in-place-of-world",
        dest="strategy",
        metavar="STRATEGY",
        help="run it by this strategy, or not at all: copy-diff, direct",
    )
    parser.add_argument(
        "--net", metavar="MODE", default="open", help="open (default), off or allow:HOST:PORT,…"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="end it after S (default 600)"
    )
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    if args.timeout <= 0:
        raise UsageError(
            "--timeout takes a number of seconds above 0", hint="leave it out for 10 minutes"
        )
    options = ReplayOptions(timeout_s=args.timeout, strategy=args.strategy, network=args.net)
    found = replay_span(place_of(context), args.span, options)
    if context.json:
        context.output.emit_json(_json(found))
    else:
        _tell(found, context, verbose=args.verbose)
    return EXIT_OK if found.step.status == MATCHED else EXIT_DIFFERENT


def _json(found: ReplayedSpan) -> dict[str, object]:
    step = found.step
    return {
        "span_id": found.entry.span_id,
        "command_id": found.entry.command_id,
        "command": found.entry.command,
        "status": step.status,
        "exit": step.exit,
        "recorded_exit": step.recorded_exit,
        "reason": step.reason,
        "diff": step.diff,
        "isolation": found.replayed.isolation._asdict(),
        "scopes_used": scopes_of(found.replayed),
        "warnings": [*found.warnings, *found.replayed.notes],
    }


def _tell(found: ReplayedSpan, context: Context, *, verbose: bool) -> None:
    output, step = context.output, found.step
    isolation = found.replayed.isolation
    if verbose:
        output.aside("replay", f"command: {found.entry.command}")
        output.aside("replay", f"strategy: {isolation.strategy} ({isolation.reason})")
        scopes = scopes_of(found.replayed)
        if scopes:
            output.aside("replay", f"scopes: {','.join(scopes)}")
    for warning in (*found.warnings, *found.replayed.notes):
        output.aside("replay", f"warn: {warning}")
    if step.status == MATCHED:
        output.line(Styled("matched", "green"), f"  {found.entry.command_id}  exit {step.exit}")
        return
    output.line(
        Styled(step.status, "red" if step.status == "failed" else "yellow"),
        f"  {found.entry.command_id}  {step.reason}",
    )
    if step.diff:
        output.diff(step.diff.encode("utf-8", "surrogateescape") + b"\n")
