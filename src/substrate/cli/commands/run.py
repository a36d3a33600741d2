"""Run a command and record what it changes: ``substrate -c``, ``-f`` and ``run``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import MissingDependencyError, UsageError
from substrate.recorder.record_command import CommandRequest, record_command
from substrate.recorder.world_choice import Asked, world_for
from substrate.world.protocol import RunRequest

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.world.protocol import Network

NAME = "run"
HELP = "run a command and record what it changes"
EXAMPLE = "substrate run -- make test"

#: Part of the contract, not of this version: asking for one is an error, never a fallback.
_NOT_YET = ("pty", "live")


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
        "--world", action="store_true", help="require a world: no fallback to the real files"
    )
    parser.add_argument("--no-world", action="store_true", help="run on the real files")
    parser.add_argument(
        "--isolate", metavar="TIER", default="", help="none, workspace (default), guarded or full"
    )
    parser.add_argument("--net", metavar="MODE", default="", help="open, off or allow:HOST:PORT,…")
    parser.add_argument(
        "--hold", action="store_true", help="do not apply what it changes: see `substrate world`"
    )
    for option in ("--pty", "--live"):
        parser.add_argument(option, action="store_true", help="not available yet")
    parser.add_argument("argv", nargs="*", metavar="ARGV", help="the program and its arguments")


def run(args: Namespace, context: Context) -> int:
    _refuse_not_yet(args)
    place = place_of(context)
    request = _request(args, context)
    if place.is_inside_world:
        return _run_inside(request, context)
    world = world_for(
        place,
        Asked(args.world, args.no_world, args.isolate, args.net or "open", args.hold),
    )
    recording = record_command(place, world, request)
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
    base = CommandRequest(
        cwd=context.cwd, timeout_s=args.timeout, kill_children=args.kill_children, hold=args.hold,
        network=_network(args.net),
    )  # fmt: skip
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


def _run_inside(request: CommandRequest, context: Context) -> int:
    """In a world already: what it does belongs to the command around it."""
    from substrate.world.direct import DirectWorld

    context.output.note("inside a world: this is recorded with the command around it")
    outcome = DirectWorld("inside a world").run(
        RunRequest(
            request.cwd,
            request.argv,
            request.shell,
            timeout_s=request.timeout_s,
            kill_children=request.kill_children,
            network=request.network,
        )
    )
    if outcome.notice:
        context.output.note(outcome.notice)
    return outcome.exit


def _network(mode: str) -> Network | None:
    from substrate.world.network.choose import network_for

    return network_for(mode or "open")


def _refuse_not_yet(args: Namespace) -> None:
    wanted = [name for name in _NOT_YET if getattr(args, name)]
    if wanted:
        raise MissingDependencyError(
            f"--{wanted[0]} is not available in this version yet",
            hint="leave the option out: the command then runs and is recorded",
        )
