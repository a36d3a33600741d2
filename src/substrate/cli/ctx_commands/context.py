"""The code that a task needs, within a budget of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import progress_on
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.code_graph import task_context

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "context"
HELP = "gather the code that a task needs, never over a token cap"
EXAMPLE = "ctx context --task 'retry failed uploads' --token-cap 4000"

_DEFAULT_CAP = 8000


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--task", metavar="TEXT", required=True, help="what is to be done")
    parser.add_argument(
        "--token-cap", metavar="N", type=int, default=_DEFAULT_CAP,
        help="tokens of the whole text, as the o200k vocabulary counts them"
        f" (default {_DEFAULT_CAP})",
    )  # fmt: skip
    parser.add_argument("--commit", metavar="REV", help="as of this revision (default HEAD)")


def run(args: Namespace, context: Context) -> int:
    if not args.task.strip():
        raise UsageError("--task is empty", hint="say what is to be done, in a few words")
    if args.token_cap < 0:
        raise UsageError("--token-cap takes a number of 0 or more", hint="such as 4000")
    made = task_context.gather(
        context.cwd, args.task, args.token_cap, args.commit, progress_on(context.output)
    )
    if context.json:
        context.output.emit_json(
            {
                "task": args.task,
                "token_cap": args.token_cap,
                "tokens": made.tokens,
                "left_out": made.left_out,
                "pieces": [piece._asdict() for piece in made.pieces],
                "text": made.text,
            }
        )
        return EXIT_OK
    context.output.block(made.text.encode("utf-8", "surrogateescape"))
    if not made.pieces:
        context.output.note("nothing in the code speaks of that, or nothing fits")
    else:
        context.output.note(
            f"{made.tokens} of {args.token_cap} tokens, {len(made.pieces)} pieces,"
            f" {made.left_out} left out"
        )
    return EXIT_OK
