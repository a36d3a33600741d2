"""Where something is used."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from substrate.cli.frame import Piece, Styled
from substrate.cli.render import progress_on
from substrate.errors import EXIT_OK, NotFoundError
from substrate.recorder.code_graph import impact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder.code_graph import Use

NAME = "refs"
HELP = "list the uses of a function, class or other definition"
EXAMPLE = "ctx refs Store.read"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name, or the end of a qualified one")
    parser.add_argument("--commit", metavar="REV", help="as of this revision (default HEAD)")


def run(args: Namespace, context: Context) -> int:
    from substrate.recorder.code_graph import find_uses, named

    snapshot = impact.snapshot_at(context.cwd, args.commit, progress_on(context.output))
    uses = find_uses(snapshot, args.name)
    if not uses and not named(snapshot, args.name):
        raise NotFoundError(
            f"nothing is called {args.name!r}", hint="`ctx symbols` lists what there is"
        )
    if context.json:
        rows = [
            {
                "path": use.place.path, "line": use.place.start_line,
                "from": use.user.fqname if use.user else None,
                "how": use.how, "to": use.target, "confidence": use.confidence,
            }
            for use in uses
        ]  # fmt: skip
        context.output.emit_json({"commit": snapshot.commit.hex(), "name": args.name, "refs": rows})
        return EXIT_OK
    if not uses:
        context.output.line("no uses found, as far as static analysis can tell")
    counted = Counter(map(_row, uses))  # one line of code may call it several times
    context.output.table(
        [(*row, f"{times} times" if times > 1 else "") for row, times in counted.items()]
    )
    return EXIT_OK


def _row(use: Use) -> tuple[Piece, ...]:
    return (
        Styled(f"{use.place.path}:{use.place.start_line}", "cyan"),
        use.user.fqname if use.user else "(import)",
        use.how,
        f"{use.confidence:.2f}",
        use.target,
    )
