"""All projects of the user: what their histories take, and what waits in them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrate.cli.render import size, when
from substrate.errors import EXIT_OK, UsageError
from substrate.model import display
from substrate.recorder import all_projects, prune_projects
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Project

NAME = "projects"
HELP = "list the projects with a history; prune: forget those that are gone"
EXAMPLE = "substrate projects prune --dry-run"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("list", "prune"), default="list", metavar="list|prune",
        help="prune: forget projects whose directory or history is gone; deletes no history",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="prune: only say what would be forgotten"
    )


def run(args: Namespace, context: Context) -> int:
    if args.action == "prune":
        return _prune(args, context)
    if args.dry_run:
        raise UsageError("unexpected option: --dry-run", hint="projects prune takes it")
    found = all_projects(context.environment)
    if context.json:
        context.output.emit_json({"projects": [_json(one) for one in found]})
        return EXIT_OK
    if not found:
        context.output.note("no projects yet; run something in one: substrate -c 'your command'")
        return EXIT_OK
    header = ("project", "size", "last used (UTC)", "held worlds", "")
    context.output.table([_row(one) for one in found], header=header, right=(1,), spare=(2, 1))
    return EXIT_OK


def _row(one: Project) -> tuple[str, ...]:
    name = display(os.fsencode(one.root))
    if not one.exists:
        return name, "-", "-", "-", "gone: `substrate projects prune` forgets it"
    held = str(one.held_worlds) if not one.problem else "-"
    return name, size(one.size_bytes), when(one.last_used_ns), held, one.problem


def _json(one: Project) -> dict[str, object]:
    return {
        "root": display(os.fsencode(one.root)),
        "store": display(os.fsencode(one.store)),
        "exists": one.exists,
        "size_bytes": one.size_bytes,
        "last_used": clock.iso(one.last_used_ns) if one.last_used_ns else None,
        "held_worlds": one.held_worlds,
        "problem": one.problem or None,
    }


def _prune(args: Namespace, context: Context) -> int:
    gone = prune_projects(context.environment, dry_run=args.dry_run)
    if context.json:
        document: dict[str, object] = {"forgotten": [display(os.fsencode(p.root)) for p in gone]}
        context.output.emit_json({**document, **({"dry_run": True} if args.dry_run else {})})
        return EXIT_OK
    verb = "would be forgotten" if args.dry_run else "forgotten"
    for one in gone:
        context.output.line(f"{verb}: {display(os.fsencode(one.root))}")
    if not gone:
        context.output.note("every known project is there: nothing to forget")
    return EXIT_OK
