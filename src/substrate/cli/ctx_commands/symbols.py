"""List definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import progress_on, symbol_json
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.code_graph import impact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "symbols"
HELP = "list functions, classes and other definitions"
EXAMPLE = "ctx symbols parse --kind function --path src"
_LIMIT = 200


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("pattern", metavar="NAME", nargs="?", default="", help="part of a name")
    parser.add_argument("--kind", metavar="KIND", default="", help="function, class, method, …")
    parser.add_argument("--path", metavar="P", default="", help="only at or below P")
    parser.add_argument("--commit", metavar="REV", help="as of this revision (default HEAD)")
    parser.add_argument(
        "--limit",
        type=int,
        default=_LIMIT,
        metavar="N",
        help=f"at most N (default {_LIMIT}); 0: all",
    )


def run(args: Namespace, context: Context) -> int:
    from substrate.recorder.code_graph import find_symbols, kinds

    if args.limit < 0:
        raise UsageError("--limit takes a number of 0 or more", hint="0 lists everything")
    snapshot = impact.snapshot_at(context.cwd, args.commit, progress_on(context.output))
    found = find_symbols(snapshot, args.pattern, kind=args.kind, path=args.path)
    shown = found[: args.limit] if args.limit else found
    if context.json:
        rows = [
            {**symbol_json(snapshot, one.symbol), "start_line": one.place.start_line,
             "end_line": one.place.end_line}
            for one in shown
        ]  # fmt: skip
        context.output.emit_json(
            {"commit": snapshot.commit.hex(), "total": len(found), "symbols": rows}
        )
        return EXIT_OK
    context.output.table(
        [
            (
                Styled(f"{one.place.path}:{one.place.start_line}", "cyan"),
                one.symbol.kind,
                one.symbol.fqname,
                Styled(one.symbol.signature or one.symbol.docstring, "dim"),
            )
            for one in shown
        ]
    )
    if not found:
        there = kinds(snapshot)
        is_odd = args.kind not in ("", "module", *there)
        others = f"; of kind {args.kind} there is none: {', '.join(there)}" if is_odd else ""
        context.output.note(f"no definition matches{others}")
    if len(shown) < len(found):
        context.output.note(f"{len(found) - len(shown)} more; --limit 0 lists all")
    return EXIT_OK
