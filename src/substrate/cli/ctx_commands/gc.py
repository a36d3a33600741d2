"""Remove garbage from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.errors import EXIT_OK
from substrate.recorder.packing import collect, find_store, pack_refs, short

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "gc"
HELP = "remove objects that nothing leads to"
EXAMPLE = "ctx gc --dry-run"

_MORE = """
Packs that are listed, tagged or drafted from stay, and their parents with them.
It waits until running packs are done.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument(
        "--drop",
        metavar="REF",
        action="append",
        default=[],
        help="take this pack off the list first; its objects go unless another pack has them",
    )
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    drop = list(dict.fromkeys(pack_refs.load_or_damaged(store, text) for text in args.drop))
    done = collect(store, drop, dry_run=args.dry_run)
    if context.json:
        context.output.emit_json(
            {
                "dry_run": args.dry_run,
                "dropped": list(done.dropped),
                "objects": list(done.objects),
                "leftovers": list(done.leftovers),
                "bytes": done.bytes,
            }
        )
        return EXIT_OK
    verb = "would remove" if args.dry_run else "removed"
    for ref in done.dropped:
        context.output.line(f"{verb} pack ", Styled(short(ref), "cyan"))
    if args.dry_run:
        for ref in done.objects:
            context.output.line(f"{verb} object {short(ref)}")
        for name in done.leftovers:
            context.output.line(f"{verb} {name}")
    context.output.line(
        f"{verb} {len(done.objects):,} objects, {len(done.leftovers):,} leftovers,"
        f" {done.bytes:,} bytes"
    )
    return EXIT_OK
