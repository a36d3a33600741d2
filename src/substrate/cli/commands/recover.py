"""Find and bring back what stood there before Substrate changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled, name_fields
from substrate.cli.render import paths_of, place_of, show_outcome, when
from substrate.errors import EXIT_OK, NotFoundError
from substrate.history import recovery
from substrate.model.nodes import Kind
from substrate.model.paths import display
from substrate.objects import snapshot as snapshots
from substrate.recorder.roll_back import restore_recovery
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.history.recovery import Recovery

NAME = "recover"
HELP = "list and bring back what stood there before Substrate changed it"
EXAMPLE = "substrate recover restore c-0k9x src/app.py"


def configure(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="list|show|restore")
    verbs.add_parser("list", help="every snapshot, newest first")
    show = verbs.add_parser("show", help="one snapshot, or one file of it")
    show.add_argument("ref", metavar="REF")
    show.add_argument("path", nargs="?", metavar="PATH")
    restore = verbs.add_parser("restore", help="bring back what it kept, or only some paths of it")
    restore.add_argument("ref", metavar="REF")
    restore.add_argument("paths", nargs="*", metavar="PATH")
    restore.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def run(args: Namespace, context: Context) -> int:
    if args.action == "list":
        return _list(context)
    if args.action == "show":
        return _show(args.ref, args.path, context)
    place = place_of(context)
    outcome = restore_recovery(place, args.ref, paths_of(place, args.paths), dry_run=args.dry_run)
    what = outcome.entry.command if outcome.entry else "restore"
    return show_outcome(context.output, outcome, dry_run=args.dry_run, done=what)


def _list(context: Context) -> int:
    with place_of(context).existing_history() as store:
        found = recovery.all_recoveries(store.ledger)
    if context.json:
        context.output.emit_json({"recoveries": [_json(one) for one in found]})
        return EXIT_OK
    rows = [
        (when(one.ts_ns), Styled(one.name, "cyan"), f"before {one.operation}", str(len(one.paths)))
        for one in found
    ]
    header = ("when (UTC)", "ref", "why", "paths")
    context.output.table(rows, header=header, right=(3,))
    return EXIT_OK


def _json(one: Recovery) -> dict[str, object]:
    return {
        "ref": one.ref,
        "name": one.name,
        "commit": one.commit.hex(),
        "ts": clock.iso(one.ts_ns),
        "operation": one.operation,
        "command_id": one.command_id,
        "paths": [display(path) for path in one.paths],
    }


def _show(ref: str, path: str | None, context: Context) -> int:
    place = place_of(context)
    with place.existing_history() as store:
        one = recovery.resolve(store, ref)
        if path is None:
            if context.json:
                context.output.emit_json(_json(one))
                return EXIT_OK
            context.output.line(f"{one.ref}: before {one.operation} {one.command_id}")
            for changed in one.paths:
                context.output.line("  ", display(changed))
            return EXIT_OK
        wanted = place.rel_path(path)
        node = snapshots.lookup(store.objects, store.snapshot_of(one.commit), wanted)
        if node.kind not in (Kind.FILE, Kind.SYMLINK):
            raise NotFoundError(
                f"{one.name} holds no file {display(wanted)}",
                hint=f"`substrate recover show {one.name}` lists what it kept",
            )
        data = store.objects.read_blob(node.oid)
    if context.json:
        import base64

        context.output.emit_json(
            {**name_fields(wanted), "mode": f"{node.mode:04o}",
             "content_b64": base64.b64encode(data).decode()}
        )  # fmt: skip
    else:
        context.output.block(data)
    return EXIT_OK
