"""Compare two packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import show_report
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.recorder.packing import compare, find_store, pack_refs

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "diff"
HELP = "tell where two packs part: prompts, model, inputs, environment, steps, outputs"
EXAMPLE = "ctx diff v1 latest --human"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the one pack: hash, ctx:// or tag")
    parser.add_argument("b", metavar="B", help="the other")
    parser.add_argument("--human", action="store_true", help="for people instead of JSON")
    parser.epilog = (parser.epilog or "") + "\n\nIt exits 0 if there is no drift, 1 if there is."


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    report = compare(store.objects, pack_refs.load(store, args.a), pack_refs.load(store, args.b))
    if args.human and not context.json:
        show_report(context.output, report)
    else:
        context.output.emit_json(report.fields())
    return EXIT_DIFFERENT if report.has_drift else EXIT_OK
