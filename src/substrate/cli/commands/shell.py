"""The interactive shell: ``substrate`` alone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from substrate.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.broker import Answer
    from substrate.cli.frame import Context
    from substrate.errors import SubstrateError
    from substrate.recorder.command import Recording

NAME = "shell"
HELP = "your own bash in a world, each line a recorded command; what `substrate` alone starts"
EXAMPLE = "substrate shell"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--world", action="store_true", help="require a world: no fallback to the real files"
    )
    parser.add_argument("--no-world", action="store_true", help="on the real files")


def _answering() -> Answer:
    from substrate.cli.frame import answer

    return answer


def run(args: Namespace, context: Context) -> int:
    if sys.platform == "win32":
        raise MissingDependencyError(
            "the shell needs bash and a POSIX system", hint="substrate -c 'COMMAND' works here"
        )
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError(
            "the shell needs a terminal", hint="for one command: substrate -c 'COMMAND'"
        )
    from substrate.broker import InsideCalls
    from substrate.cli.render import unrecorded
    from substrate.shell import Surroundings, run_shell

    no_history = ""

    def recorded(recording: Recording) -> None:
        nonlocal no_history
        if recording.no_history not in ("", no_history):  # note each reason once
            context.output.note(unrecorded(recording))
        no_history = recording.no_history
        for note in recording.notes:
            context.output.note(note)
        if recording.not_arrived is not None:
            context.output.not_applied(str(recording.not_arrived))

    def failed(error: SubstrateError) -> None:
        context.output.emit_error(error)

    return run_shell(
        Surroundings(
            context.cwd,
            context.environment,
            context.session,
            context.agent_id,
            recorded,
            failed,
            context.output.note,
            lambda: InsideCalls(_answering),
            args.world,
            args.no_world,
        )
    )
