"""Take what a coding agent's hook reports on stdin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK, SubstrateError
from substrate.recorder.agent_events import HOOKED_AGENTS, take_report

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "hook"
HELP = "record what a coding agent's hook reports on stdin"
EXAMPLE = "substrate hook claude-code"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help=" or ".join(HOOKED_AGENTS))


def run(args: Namespace, context: Context) -> int:
    """Always 0: an agent must not stop because its recorder failed."""
    try:
        take_report(context.environment, args.agent, sys.stdin.buffer.read(), _say)
    except (SubstrateError, OSError):
        pass  # the next command meets the same, and says it to the user
    except Exception as error:  # noqa: BLE001  the agent must go on
        _report(error, context)
    return EXIT_OK


def _say(text: str) -> bool:
    """Print it; False if the agent has closed its end: the hook has returned in the meantime."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _report(error: Exception, context: Context) -> None:
    """A bug: leave a report for `substrate doctor`'s reader, without the agent's data."""
    from contextlib import suppress

    from substrate.cli.frame import write_report

    with suppress(Exception):
        write_report(error, ("hook",), context.environment)
