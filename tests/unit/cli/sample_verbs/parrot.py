"""A verb that says back what it was given."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from substrate.cli.frame.context import Context

NAME = "parrot"
HELP = "say back what was said"
EXAMPLE = "substrate parrot hello --times 2"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=1)
    inner = parser.add_subparsers(dest="mood")
    inner.add_parser("softly")
    loudly = inner.add_parser("loudly")
    loudly.add_argument("word")


def run(args: Namespace, context: Context) -> int:
    heard = {
        "mood": args.mood,
        "times": args.times,
        "session": context.session,
        "agent_id": context.agent_id,
        "cwd": str(context.cwd),
    }
    if context.json:
        context.output.emit_json(heard)
    else:
        context.output.table([[name, str(value)] for name, value in heard.items()])
    return 0
