"""The program: find the verb, run it, and turn every failure into words and an exit status.

This is the only place that picks an exit status for a failure; `errors.py` holds the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.cli.arguments import VERBS, Invocation, load, overview, parse, split, wants_json
from substrate.cli.context import Context
from substrate.cli.output import Output, open_output
from substrate.errors import (
    EXIT_BUG,
    EXIT_OK,
    EXIT_RUN_FAILED,
    EXIT_USAGE,
    DiskFullError,
    NotFoundError,
    SubstrateError,
    UsageError,
    WorkspaceError,
)
from substrate.system import environment as environment_module
from substrate.system import room

if TYPE_CHECKING:
    from substrate.system.environment import Environment

#: What a command in a world can ask of its own history.
ANSWERED_OUTSIDE = ("log", "show", "diff", "status", "checkpoint", "undo")
#: As a shell reports a program that a signal ended: 128 + SIGINT, 128 + SIGPIPE.
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


class Program(NamedTuple):
    """One of the two programs that share this frame."""

    name: str
    verbs: Mapping[str, str]
    #: How it is called; None: as `substrate` is.
    usage: str | None = None
    #: Verbs that give the usual status for usage a meaning of their own, and what they use instead.
    usage_exits: Mapping[str, int] = {}


def substrate(argv: Sequence[str] | None = None, verbs: Mapping[str, str] = VERBS) -> int:
    """Run one call of `substrate` and return its exit status."""
    return run_program(argv, Program("substrate", verbs))


def run_program(argv: Sequence[str] | None, program: Program) -> int:
    """Run one call and return its exit status; never raises, never lets a traceback out."""
    words = sys.argv[1:] if argv is None else list(argv)
    environment = environment_module.current()
    output = open_output(environment, json=wants_json(words), program=program.name)

    def dispatch(invocation: Invocation) -> int:
        return _dispatch(invocation, environment, program, output, words)

    return guarded(words, environment, program, output, dispatch)


def guarded(
    words: Sequence[str],
    environment: Environment,
    program: Program,
    output: Output,
    dispatch: Callable[[Invocation], int],
) -> int:
    """Sort the words, have them carried out, and turn whatever happens into an exit status."""
    running = False
    usage_exit = EXIT_USAGE
    try:
        invocation = split(words, program.verbs, program.name)
        if _is_bare(invocation) and "shell" in program.verbs and os.isatty(0):
            invocation = invocation._replace(verb="shell")
        usage_exit = program.usage_exits.get(invocation.verb, EXIT_USAGE)
        # From here on a status other than 125 could be mistaken for the command's own.
        running = invocation.verb == "run"
        if running or invocation.verb == "shell":
            room.require()
        status = dispatch(invocation)
        output.flush()
        return status
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return _EXIT_BROKEN_PIPE
    except SubstrateError as error:
        status = _failed(error, output, running)
        return usage_exit if status == EXIT_USAGE else status
    except Exception as error:  # noqa: BLE001  the last line of defence
        known = room.shortage(error) or _from_os_error(error)
        if known is not None:
            return _failed(known, output, running)
        _report_crash(error, words, environment, output)
        return EXIT_RUN_FAILED if running else EXIT_BUG


def _dispatch(
    invocation: Invocation,
    environment: Environment,
    program: Program,
    output: Output,
    words: Sequence[str],
) -> int:
    if invocation.verb:
        if _is_answered_outside(invocation, program, environment):
            from substrate.client.inside import ask

            return ask(environment, words)
        command = load(invocation.verb, program.verbs)
        try:
            args = parse(command, invocation, program.name)
        except SystemExit:  # argparse's way out after --help
            return EXIT_OK
        output.json = args.json
        context = Context(
            cwd=_working_directory(args.workspace),
            environment=environment,
            output=output,
            json=args.json,
            session=args.session,
            agent_id=args.agent_id,
        )
        return command.run(args, context)
    if invocation.wants_version:
        from substrate import __version__

        if invocation.json:
            output.emit_json({"version": __version__})
        else:
            output.line(f"{program.name} {__version__}")
        return EXIT_OK
    if invocation.wants_help:
        output.json = False  # a page for people, as `VERB --help --json` is
        output.block(overview(program.verbs, program.usage, output.columns).encode())
        return EXIT_OK
    hint = f"{program.name} --help lists the verbs"
    if "shell" in program.verbs:
        hint += "; without one a shell starts, on a terminal only"
    raise UsageError("no verb given", hint=hint)


def _is_answered_outside(
    invocation: Invocation, program: Program, environment: Environment
) -> bool:
    """Whether it is a question from inside a world; a page of help needs nobody."""
    return (
        environment.get("SUBSTRATE_BROKER") is not None
        and program.name == "substrate"
        and invocation.verb in ANSWERED_OUTSIDE
        and not {"--help", "-h"} & set(invocation.words)
    )


def _is_bare(invocation: Invocation) -> bool:
    """`substrate` alone, or with nothing but where and who."""
    return not (invocation.verb or invocation.wants_help or invocation.wants_version)


def _working_directory(wanted: str | None) -> Path:
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise WorkspaceError(
            "the current directory is no longer there", hint="cd to a directory that exists"
        ) from None
    if wanted is None:
        return here
    there = Path(os.path.abspath(here / wanted))
    if not there.is_dir():
        what = "is not a directory" if os.path.lexists(there) else "does not exist"
        raise NotFoundError(f"{there} {what}", hint="give -C a directory that is there")
    return there


def _failed(error: SubstrateError, output: Output, running: bool) -> int:
    try:
        output.flush()
    except OSError:  # it may be this very error
        _silence_stdout()
    try:
        output.emit_error(error)
    except OSError:  # nobody is left to read it; the status still tells
        pass
    return EXIT_RUN_FAILED if running else error.exit_code


def _from_os_error(error: Exception) -> SubstrateError | None:
    """What the machine refuses (disk full, read-only, no permission) is no bug of ours."""
    import errno

    hints = {
        errno.ENOSPC: "free some disk space and try again; `substrate world list` shows what waits",
        errno.EDQUOT: "free some of your disk quota and try again",
        errno.EROFS: "the file system is mounted read-only",
        errno.EACCES: "check who owns it and its permissions",
        errno.EPERM: "check who owns it and its permissions",
        errno.EIO: "the device reports errors: look after your disk first",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.ENFILE: "too many files are open on this machine",
        errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
        errno.ENOMEM: "raise the limit of memory (ulimit -v), or free some",
        errno.EAGAIN: "there may be too many processes: raise the limit (ulimit -u), or try again",
    }
    if not isinstance(error, OSError) or error.errno not in hints:
        return None
    where = f": {os.fsdecode(error.filename)}" if error.filename is not None else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = DiskFullError if full else WorkspaceError
    return kind(f"{error.strerror}{where}", hint=hints[error.errno])


def _report_crash(
    error: Exception, words: Sequence[str], environment: Environment, output: Output
) -> None:
    from substrate.cli.crash import write_report

    try:
        where = f"a report was written to {write_report(error, words, environment)}"
    except Exception:  # noqa: BLE001  reporting must not raise what it reports
        where = "no report could be written"
    bug = SubstrateError(
        f"a bug in Substrate: {type(error).__name__}",
        hint=f"{where}; please send it to the maintainers",
    )
    bug.kind = "bug"
    _failed(bug, output, running=False)


def _silence_stdout() -> None:
    """Whoever read us is gone: keep the interpreter from complaining about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
