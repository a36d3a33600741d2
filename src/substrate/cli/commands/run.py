"""Run a command and record what it changes: ``substrate -c``, ``-f`` and ``run``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import MissingDependencyError, UsageError
from substrate.recorder.record_command import CommandRequest, record_command
from substrate.world.direct import DirectWorld

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "run"
HELP = "run a command and record what it changes"
EXAMPLE = "substrate run -- make test"

#: Part of the contract, not of this version: asking for one is an error, never a fallback.
_WORLD_OPTIONS = ("world", "isolate", "net", "pty", "hold", "live")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("-c", dest="command", metavar="CMD", help="a line for the shell")
    parser.add_argument(
        "-f",
        dest="file",
        metavar="FILE",
        help="a script: by its #! line if executable, else the shell",
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="end it after S seconds (124)")
    parser.add_argument(
        "--kill-children", action="store_true", help="end what the command leaves running"
    )
    parser.add_argument(
        "--no-world", action="store_true", help="run on the real files (what this version does)"
    )
    parser.add_argument(
        "--world", action="store_true", help="require isolation (not available yet)"
    )
    parser.add_argument("--isolate", metavar="TIER", help="none, or a tier (not available yet)")
    parser.add_argument(
        "--net", metavar="MODE", help="open, or off and allow:… (not available yet)"
    )
    for option in ("--pty", "--hold", "--live"):
        parser.add_argument(option, action="store_true", help="not available yet")
    parser.add_argument("argv", nargs="*", metavar="ARGV", help="the program and its arguments")


def run(args: Namespace, context: Context) -> int:
    _refuse_worlds(args)
    place = place_of(context)
    request = _request(args, context)
    recording = record_command(place, DirectWorld(_why(args, context)), request)
    if recording.outcome.notice:
        context.output.note(recording.outcome.notice)
    if recording.no_history:
        context.output.note(
            f"no history is kept here: {recording.no_history}; the command was only traced"
        )
    for note in recording.notes:
        context.output.note(note)
    return recording.outcome.exit


def _request(args: Namespace, context: Context) -> CommandRequest:
    if args.command is not None and args.argv:
        raise UsageError(
            f"-c takes the command as one word; {args.argv[0]!r} is one too many",
            hint="put the whole line in quotes: substrate -c 'make test'",
        )
    given = [bool(args.argv), args.command is not None, args.file is not None]
    if given.count(True) != 1 and not (args.file is not None and args.command is None):
        raise UsageError(
            "give one command: -c 'LINE', -f FILE, or -- PROGRAM ARG…",
            hint="substrate -c 'make test'",
        )
    base = CommandRequest(cwd=context.cwd, timeout_s=args.timeout, kill_children=args.kill_children)
    if args.timeout is not None and args.timeout <= 0:
        raise UsageError(
            "--timeout takes a number of seconds above 0", hint="leave it out for no limit"
        )
    if args.command is not None:
        return base._replace(shell=args.command)
    if args.file is not None:
        return base._replace(argv=(*_interpreter(context, args.file), *args.argv))
    return base._replace(argv=tuple(args.argv))


def _interpreter(context: Context, file: str) -> tuple[str, ...]:
    """A script names its interpreter itself, or is read by the shell."""
    path = context.cwd / file
    if not path.is_file():
        raise UsageError(f"no such script: {file}", hint="give the path of a script to -f")
    if os.access(path, os.X_OK):
        return (str(path),)
    from substrate.system import process

    shell = process.shell_argv("")[0]
    return (os.fsdecode(shell), str(path))


def _refuse_worlds(args: Namespace) -> None:
    wanted = [name for name in _WORLD_OPTIONS if getattr(args, name)]
    if args.isolate == "none":
        wanted.remove("isolate")
    if args.net == "open":
        wanted.remove("net")
    if wanted:
        raise MissingDependencyError(
            f"--{wanted[0]} needs a world, and this version has none yet",
            hint="leave the option out: the command then runs on the real files and is recorded",
        )


def _why(args: Namespace, context: Context) -> str:
    if args.no_world or context.environment.world == "disabled":
        return "asked for"
    return "this version has no other strategy"
