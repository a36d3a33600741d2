"""Index a commit's files, symbols and edges into the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled, plural
from substrate.cli.render import progress_on
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.code_graph import graph_location

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context, Output
    from substrate.recorder.code_graph import Indexed

NAME = "index"
HELP = "index a commit's files, symbols, imports and calls"
EXAMPLE = "ctx index main~3"
_COUNTED = ("file", "symbol", "import", "call")


def configure(parser: ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "rev", nargs="?", metavar="REV", help="a revision, or a range A..B (default HEAD)"
    )
    what.add_argument("--commit", metavar="REV", help="the same, as an option")
    what.add_argument("--all", action="store_true", help="every commit of every branch and tag")
    parser.add_argument(
        "--history", action="store_true", help="Substrate's own commits instead of git's"
    )


def run(args: Namespace, context: Context) -> int:
    wanted: str | None = args.commit if args.rev is None else args.rev
    if wanted == "":
        raise UsageError(
            "an empty word: index needs a revision", hint="give a branch, a tag or a commit id"
        )
    with graph_location.open_graph(
        context.cwd, history=args.history, progress=progress_on(context.output)
    ) as graph:
        commits = graph.commits(wanted, everything=args.all)
        done = [graph.index(commit) for commit in commits]
    if context.json:
        context.output.emit_json({"indexed": [_json(one) for one in done]})
        return EXIT_OK
    for one in done:
        _show(context.output, one)
    return EXIT_OK


def _json(one: Indexed) -> dict[str, object]:
    return {
        "commit": one.commit.hex(),
        "already_indexed": one.was_there,
        **one.counts,
        "snapshot": str(one.directory),
    }


def _show(output: Output, one: Indexed) -> None:
    counts = one.counts
    said = "already indexed" if one.was_there else "indexed"
    parts = [plural(counts.get(f"{what}s", 0), what) for what in _COUNTED]
    output.line(Styled(one.commit.hex()[:12], "cyan"), f"  {said}: {', '.join(parts)}")
    troubles = counts.get("troubles", 0)
    if troubles and not one.was_there:
        output.note(
            f"{plural(troubles, 'file')} could not be read whole"
            " (`trouble` in files.jsonl says why)"
        )
