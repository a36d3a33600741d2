"""What `-c`, `-f` and `run --` must be able to parse."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from substrate.cli.frame.context import Context
from substrate.errors import MissingDependencyError

NAME = "run"
HELP = "run something"
EXAMPLE = "substrate run -- make test"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("-c", "--command")
    parser.add_argument("-f", "--file")
    parser.add_argument("--no-world", action="store_true")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("argv", nargs="*")


def run(args: Namespace, context: Context) -> int:
    if args.command == "fail":
        raise MissingDependencyError("nothing to run with", hint="install something")
    if args.command == "crash":
        raise ZeroDivisionError
    context.output.emit_json(
        {
            "command": args.command,
            "file": args.file,
            "argv": args.argv,
            "no_world": args.no_world,
            "timeout": args.timeout,
            "session": context.session,
        }
    )
    return 42
