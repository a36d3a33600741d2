"""Squash old history, pack the rest, drop unneeded objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of, size
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder import compact_history, preview_compaction

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Decision, Range

NAME = "compact"
HELP = "squash old history, pack the rest"
EXAMPLE = "substrate compact --keep-sessions 3 --dry-run"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--keep-checkpoints", type=int, metavar="N", help="checkpoints per session (default 5)"
    )
    parser.add_argument(
        "--keep-sessions", type=int, metavar="M", help="sessions at command grain (default 5)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be squashed, and why"
    )


def run(args: Namespace, context: Context) -> int:
    for value in (args.keep_checkpoints, args.keep_sessions):
        if value is not None and value < 0:
            raise UsageError(
                "how many to keep is a number of 0 or more", hint="substrate compact --dry-run"
            )
    place = place_of(context)
    if args.dry_run:
        decision = preview_compaction(place, args.keep_checkpoints, args.keep_sessions)
        return _preview(decision, context)
    report = compact_history(place, args.keep_checkpoints, args.keep_sessions)
    if context.json:
        context.output.emit_json(
            {
                "squashed": [_json(one) for one in report.decision.ranges],
                "size_before": report.size_before,
                "size_after": report.size_after,
                "commits_before": report.commits_before,
                "commits_after": report.commits_after,
                "expired_recovery_refs": list(report.expired_recoveries),
                "expired_trash": list(report.expired_trash),
                "notes": list(report.notes),
            }
        )
        return EXIT_OK
    context.output.line(
        f"{report.commits_before} → {report.commits_after} commits,"
        f" {size(report.size_before)} → {size(report.size_after)}"
    )
    for note in report.notes:
        context.output.note(note)
    return EXIT_OK


def _preview(decision: Decision, context: Context) -> int:
    if context.json:
        context.output.emit_json(
            {
                "dry_run": True,
                "squashed": [_json(one) for one in decision.ranges],
                "kept": decision.kept,
            }
        )
        return EXIT_OK
    rows = [
        ("squash", f"{one.command_ids[0]} … {one.command_ids[-1]}", one.reason)
        for one in decision.ranges
    ]
    rows += [("keep", command_id, why) for command_id, why in decision.kept.items()]
    context.output.table(rows)
    return EXIT_OK


def _json(one: Range) -> dict[str, object]:
    return {
        "session_id": one.session_id,
        "grain": one.grain,
        "commands": list(one.command_ids),
        "reason": one.reason,
    }
