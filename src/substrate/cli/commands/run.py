"""Run a command and record what it changes: ``substrate -c``, ``-f`` and ``run``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from substrate.broker import InsideCalls
from substrate.cli.render import place_of
from substrate.errors import RefusedError, UsageError
from substrate.recorder import ResourceLimits, RunRequest
from substrate.recorder.agent_events import as_agreed
from substrate.recorder.command import (
    Asked,
    CommandRequest,
    check_of,
    denied_access,
    record_command,
    require_overlay,
    world_for,
)
from substrate.system.process import die_of_signal

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.broker import Answer
    from substrate.cli.frame import Context
    from substrate.client.broker_client import Nested
    from substrate.recorder import Network
    from substrate.recorder.command import Recording

NAME = "run"
HELP = "run a command and record what it changes"
EXAMPLE = "substrate run -- make test"

_MORE = """
Exit status: the command's own, or
  122  it succeeded, but not all of its change is in your tree: the last line says what to type
  124  ended by --timeout        125  Substrate failed        126  denied by policy"""
#: How much of a failed check's output is shown: the end of it.
_MOST_SHOWN_BYTES = 64 * 1024
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def configure(parser: ArgumentParser) -> None:
    parser.epilog = (parser.epilog or "") + "\n" + _MORE
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
    parser.add_argument(
        "--check", metavar="CMD", default="",
        help="run CMD on the changed files first, in a world of its own; apply the change only if"
        " it passes, else hold it",
    )  # fmt: skip
    parser.add_argument(
        "--no-record", action="store_true", help="run it on the real files and record nothing"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="on the real files, recorded as it goes: for servers that must see edits",
    )
    parser.add_argument(
        "--pty", action="store_true", help="give it a terminal of its own, relayed to ours"
    )
    parser.add_argument(
        "--writable",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory that guarded and full leave open, too",
    )
    parser.add_argument(
        "--allow-host-services",
        action="store_true",
        help="container engines and message buses stay reachable",
    )
    parser.add_argument("--limit-pids", type=int, metavar="N", help="at most N processes")
    parser.add_argument("--limit-memory", metavar="SIZE", help="at most SIZE bytes: 512M, 2G")
    parser.add_argument("--limit-cpus", type=float, metavar="N", help="at most N processors: 0.5")
    parser.add_argument("argv", nargs="*", metavar="ARGV", help="the program and its arguments")


def run(args: Namespace, context: Context) -> int:
    if args.pty:
        from substrate.system.terminal import run_on_terminal

        return run_on_terminal(lambda: _run(args, context))
    return _run(args, context)


def _run(args: Namespace, context: Context) -> int:
    place = as_agreed(place_of(context), no_record=args.no_record)
    request = _request(args, context)
    if place.is_inside_world:
        return _run_inside(args, request, context)
    asked = _asked(args, context)
    world = world_for(place, asked)
    if args.check:
        require_overlay(world)
        request = request._replace(check=check_of(place, asked, args.check))
    if place.workspace.history_refused and not place.workspace.is_unwanted:
        context.output.note(place.workspace.note_at_command)
    elif place.workspace.is_unwanted and not args.no_record and sys.stderr.isatty():
        # On a terminal only: an agent would take it for the command's own words.
        context.output.note(f"{place.workspace.refusal}; {place.workspace.refusal_hint}")
    recording = record_command(place, world, request._replace(inside=InsideCalls(_answering)))
    if recording.outcome.notice:
        context.output.note(recording.outcome.notice)
    for note in (*denied_access.notes_of(recording.outcome), *recording.notes):
        context.output.note(note)
    if args.check:
        _show_check(recording, context)
    if recording.not_arrived is not None:
        context.output.not_applied(str(recording.not_arrived))
    die_of_signal.command_ended(recording.status, recording.outcome.signal)
    return recording.status


def _show_check(recording: Recording, context: Context) -> None:
    """Show the output of a check that failed; on stderr, because stdout is the command's own."""
    checked = recording.checked
    if checked is None:
        context.output.note("the command changed nothing: the check did not run")
        return
    kept = checked.output.path if checked.output is not None else None
    if not checked.causes or kept is None:
        return
    context.output.flush()
    with kept.open("rb") as file:
        file.seek(-min(_MOST_SHOWN_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        sys.stderr.flush()
        sys.stderr.buffer.write(file.read())
        sys.stderr.flush()
    context.output.note(f"this is the output of the check; all of it is in {kept}")


def _asked(args: Namespace, context: Context) -> Asked:
    return Asked(
        world=args.world,
        no_world=args.no_world,
        tier=args.isolate,
        network=args.net or "open",
        hold=args.hold,
        check=bool(args.check),
        allow_host_services=args.allow_host_services,
        writable=tuple(context.cwd / directory for directory in args.writable),
        live=args.live,
    )


def _limits(args: Namespace) -> ResourceLimits:
    for name in ("limit_pids", "limit_cpus"):
        value = getattr(args, name)
        if value is not None and value <= 0:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} takes a number above 0", hint="leave it out for no limit")
    memory = None if args.limit_memory is None else _size(args.limit_memory)
    return ResourceLimits(args.limit_pids, memory, args.limit_cpus)


def _size(text: str) -> int:
    number, unit = text.upper().removesuffix("IB").removesuffix("B"), ""
    if number[-1:] in _UNITS:
        number, unit = number[:-1], number[-1:]
    if not number.isdecimal() or int(number) == 0:
        raise UsageError(
            f"{text!r} is no size", hint="--limit-memory takes a number of bytes: 512M, 2G"
        )
    return int(number) * _UNITS[unit]


def _request(args: Namespace, context: Context) -> CommandRequest:
    if args.command is not None and args.argv:
        raise UsageError(
            f"-c takes the command as one word; {args.argv[0]!r} is one too many",
            hint="put the whole line in quotes: substrate -c 'make test'",
        )
    if args.command == "":
        raise UsageError("no command was given", hint="substrate -c 'make test'")
    given = [bool(args.argv), args.command is not None, args.file is not None]
    if given.count(True) != 1 and not (args.file is not None and args.command is None):
        raise UsageError(
            "give one command: -c 'LINE', -f FILE, or -- PROGRAM ARG…",
            hint="substrate -c 'make test'",
        )
    base = CommandRequest(
        cwd=context.cwd, timeout_s=args.timeout, kill_children=args.kill_children, hold=args.hold,
        network=_network(args.net), limits=_limits(args), live=args.live,
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
    """The interpreter that the script names, or else the shell."""
    path = context.cwd / file
    if not path.is_file():
        what = "not a file" if path.exists() else "no such script"
        raise UsageError(f"{what}: {file}", hint="give the path of a script to -f")
    if os.access(path, os.X_OK):
        return (str(path),)
    from substrate.system.process import process

    shell = process.shell_argv("")[0]
    return (os.fsdecode(shell), str(path))


def _answering() -> Answer:
    from substrate.cli.frame import answer

    return answer


def _run_inside(args: Namespace, request: CommandRequest, context: Context) -> int:
    """Run inside the current world: the changes belong to the enclosing command."""
    from substrate.client import broker_client
    from substrate.recorder import DirectWorld

    _refuse_inside(args)
    begun = _begun_inside(args, request, context)
    env = {} if begun is None else {"SUBSTRATE_PARENT_SPAN": begun.span_id}
    outcome = DirectWorld("inside a world").run(
        RunRequest(
            request.cwd,
            request.argv,
            request.shell,
            env=env,
            timeout_s=request.timeout_s,
            kill_children=request.kill_children,
            network=request.network,
        )
    )
    if begun is not None:
        broker_client.end(
            context.environment, begun, outcome.exit, outcome.signal or 0, outcome.duration_ms
        )
    if outcome.notice:
        context.output.note(outcome.notice)
    die_of_signal.command_ended(outcome.exit, outcome.signal)
    return outcome.exit


def _refuse_inside(args: Namespace) -> None:
    for name in ("hold", "check", "no_world", "live"):
        if getattr(args, name):
            option = "--" + name.replace("_", "-")
            raise RefusedError(
                f"{option} cannot be had inside a world",
                hint="leave it out: the command runs in the world it was started from",
            )


def _begun_inside(args: Namespace, request: CommandRequest, context: Context) -> Nested | None:
    """Have the broker record it as part of the enclosing command; None: there is no broker."""
    from substrate.client import broker_client

    environment = context.environment
    if not broker_client.is_there(environment):
        if args.isolate:
            raise RefusedError(
                f"from inside it cannot be said whether this world has the tier {args.isolate}",
                hint="ask for it outside",
            )
        context.output.note("inside a world: this is recorded with the command around it")
        return None
    words = ("c", request.shell) if request.shell else ("v", *request.argv)
    parent = environment.parent_span or ""
    try:
        return broker_client.begin(environment, args.isolate, parent, *words)
    except RefusedError as error:
        if args.isolate:
            raise
        context.output.note(f"inside a world: {error.message}")
        return None


def _network(mode: str) -> Network | None:
    from substrate.recorder import network_for

    return network_for(mode or "open")
