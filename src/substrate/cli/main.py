"""The program: find the verb, run it, and turn every failure into a message and an exit status.

This is the only module that picks an exit status for a failure; `errors.py` has the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.cli.frame import (
    VERBS,
    Context,
    Invocation,
    Output,
    announce_interrupted,
    load,
    may_be_reading,
    open_output,
    overview,
    parse,
    split,
    wants_json,
)
from substrate.errors import (
    EXIT_BUG,
    EXIT_OK,
    EXIT_RUN_FAILED,
    EXIT_USAGE,
    DiskFullError,
    NotFoundError,
    OutputError,
    SubstrateError,
    UsageError,
    WorkspaceError,
)
from substrate.system import environment as environment_module
from substrate.system import umask, user_notes
from substrate.system.process import rlimit_check

if TYPE_CHECKING:
    from substrate.system import Environment

#: The verbs that a command in a world can use on its own history.
ANSWERED_OUTSIDE = ("log", "show", "diff", "status", "checkpoint", "undo")
#: The exit status of a shell for a program ended by a signal: 128 + SIGINT, 128 + SIGPIPE.
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


class Program(NamedTuple):
    """One of the two programs that share this frame."""

    name: str
    verbs: Mapping[str, str]
    #: Its usage text; None: that of `substrate`.
    usage: str | None = None
    #: Verbs that use the exit status of a usage error for something else, and what they use then.
    usage_exits: Mapping[str, int] = {}


def substrate(argv: Sequence[str] | None = None, verbs: Mapping[str, str] = VERBS) -> int:
    """Run one call of `substrate` and return its exit status."""
    # A coding agent takes an exit status of 2 as "do not do that".
    return run_program(argv, Program("substrate", verbs, usage_exits={"hook": EXIT_OK}))


def run_program(argv: Sequence[str] | None, program: Program) -> int:
    """Run one call and return its exit status; never raises, never prints a traceback."""
    words = sys.argv[1:] if argv is None else list(argv)
    umask.take(umask.current())
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
    """Split the arguments, run the verb, and turn every outcome into an exit status."""
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
            rlimit_check.require()
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
        known = rlimit_check.shortage(error) or _from_os_error(error)
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
            from substrate.client.broker_client import ask

            return ask(environment, words)
        command = load(invocation.verb, program.verbs)
        try:
            args = parse(command, invocation, program.name)
        except SystemExit:  # argparse exits after --help
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
        user_notes.to = output.note
        if program.name == "substrate" and may_be_reading(invocation.verb, args):
            announce_interrupted(context)
        return command.run(args, context)
    if invocation.wants_version:
        from substrate import __version__

        if invocation.json:
            output.emit_json({"version": __version__})
        else:
            output.line(f"{program.name} {__version__}")
        return EXIT_OK
    if invocation.wants_help:
        output.json = False  # a page for people, like `VERB --help --json`
        output.block(overview(program.verbs, program.usage, output.columns).encode())
        return EXIT_OK
    hint = f"{program.name} --help lists the verbs"
    if "shell" in program.verbs:
        hint += "; without one a shell starts, on a terminal only"
    raise UsageError("no verb given", hint=hint)


def _is_answered_outside(
    invocation: Invocation, program: Program, environment: Environment
) -> bool:
    """Whether the broker must answer a call from inside a world; help pages do not need it."""
    return (
        environment.get("SUBSTRATE_BROKER") is not None
        and program.name == "substrate"
        and invocation.verb in ANSWERED_OUTSIDE
        and not {"--help", "-h"} & set(invocation.words)
    )


def _is_bare(invocation: Invocation) -> bool:
    """`substrate` alone, or with only global options."""
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
    except (OSError, OutputError):  # the error to report may be this one
        _silence_stdout()
    try:
        output.emit_error(error)
    except OSError:  # the reader is gone; the exit status still reports it
        pass
    return error.run_exit if running else error.exit_code


def _from_os_error(error: Exception) -> SubstrateError | None:
    """An error of the machine (disk full, read-only, no permission) is not a bug of ours."""
    import errno

    hints = {
        errno.ENOSPC: "free some disk space and try again; `substrate world list` shows what waits",
        errno.ENAMETOOLONG: "the path is too long: move the project to a place with a shorter one",
        errno.EDQUOT: "free some of your disk quota and try again",
        errno.EROFS: "the file system is mounted read-only",
        errno.EACCES: "check its owner and permissions",
        errno.EPERM: "check its owner and permissions",
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
    reason, hint = error.strerror, hints[error.errno]
    from substrate.system.files import files

    if error.errno == errno.ENOSPC and error.filename and files.lacks_inodes(error.filename):
        reason, hint = files.NO_INODES
    return kind(f"{reason}{where}", hint=hint)


def _report_crash(
    error: Exception, words: Sequence[str], environment: Environment, output: Output
) -> None:
    from substrate.cli.frame import write_report

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
    """The reader of stdout is gone: keep the interpreter from reporting that at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
