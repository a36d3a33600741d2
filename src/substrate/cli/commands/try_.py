"""Run a command several times, each in a held world, to pick one of the results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.render import place_of, show_tried
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, EXIT_RUN_FAILED, RefusedError, UsageError
from substrate.recorder.arrival import attempts
from substrate.recorder.command import attempt_variables
from substrate.system import ids
from substrate.system.files import private_scratch
from substrate.system.process import Stdio, map_forked, process, processors

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "try"
HELP = "run a command several times, each in a held world of its own; `world pick` chooses one"
EXAMPLE = "substrate try 3 --check 'pytest -q' -- ./fix-the-bug.sh"

#: Options of `run` that each attempt gets.
_PASSED_ON = ("check", "timeout", "isolate", "net")
_MOST = 64
#: How much of its message an attempt that could not run shows.
_SHOWN_BYTES = 2000


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("count", type=int, metavar="N", help=f"how many attempts, up to {_MOST}")
    parser.add_argument(
        "--check", metavar="CMD", help="run CMD on each result; `world compare` shows how it ended"
    )
    parser.add_argument("--timeout", metavar="S", help="end an attempt after S seconds")
    parser.add_argument("--isolate", metavar="TIER", help="workspace (default), guarded or full")
    parser.add_argument("--net", metavar="MODE", help="open, off or allow:HOST:PORT,…")
    parser.add_argument(
        "argv", nargs="*", metavar="ARGV",
        help="the program and its arguments; it finds its number in SUBSTRATE_ATTEMPT",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    if not 1 <= args.count <= _MOST:
        raise UsageError(f"N is a number from 1 to {_MOST}", hint=EXAMPLE)
    if not args.argv:
        raise UsageError("no command was given", hint=EXAMPLE)
    place = place_of(context)
    if place.is_inside_world:
        raise UsageError("an attempt cannot be made inside a world", hint="call it outside")
    group = ids.new_id("try")
    with private_scratch(context.environment.substrate_home) as scratch:

        def one(number: int) -> int:
            return _attempt(_words(args, context), context, group, number, scratch)

        workers = min(args.count, processors())
        statuses = list(map_forked(one, range(1, args.count + 1), workers=workers, isolate=True))
        _refuse_failed(statuses, scratch)
    waiting = attempts.of_group(place, group)
    found = attempts.attempts(place, tuple(world.world_id for world in waiting))
    show_tried(context, group, statuses, found)
    failed = {one.number for one in found if one.check is not None and not one.check["passed"]}
    good = [n for n, status in enumerate(statuses, 1) if status == 0 and n not in failed]
    return EXIT_OK if good else EXIT_DIFFERENT


def _words(args: Namespace, context: Context) -> list[str]:
    """The call of one attempt."""
    # -P: not a directory `substrate` of the project.
    words = [sys.executable, "-P", "-m", "substrate", "run", "--hold"]
    for name in _PASSED_ON:
        value = getattr(args, name)
        words += [f"--{name}={value}"] if value is not None else []
    words += [f"--session={context.session}"] if context.session else []
    words += [f"--agent-id={context.agent_id}"] if context.agent_id else []
    return [*words, "--", *args.argv]


def _attempt(words: list[str], context: Context, group: str, number: int, scratch: Path) -> int:
    """Run one attempt; its output is kept like that of any command, and not shown."""
    env = {
        **context.environment.variables,
        attempt_variables.NUMBER: str(number), attempt_variables.GROUP: group,
    }  # fmt: skip
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Not /dev/null: what is written there is not captured.
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    out = os.open(scratch / f"{number}.out", new, 0o600)
    err = os.open(scratch / str(number), new, 0o600)
    try:
        done = process.run_foreground(
            words, cwd=context.cwd, env=env, stdio=Stdio(nothing, out, err)
        )
        return done.exit_code
    finally:
        for fd in (nothing, out, err):
            os.close(fd)


def _refuse_failed(statuses: list[int], scratch: Path) -> None:
    for number, status in enumerate(statuses, 1):
        if status == EXIT_RUN_FAILED:
            said = (scratch / str(number)).read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")
            first = said.strip().splitlines() or ["no message"]
            raise RefusedError(
                f"attempt {number} of {len(statuses)} could not run: {first[0]}",
                hint="`substrate world list` shows the attempts that ran",
            )
