"""Completion scripts for the user's shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrate.cli.frame import script_for
from substrate.cli.render import place_of
from substrate.errors import EXIT_OK, SubstrateError
from substrate.recorder import queries
from substrate.recorder.arrival import held_worlds

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "completion"
HELP = "print the completion script of a shell; ids are completed from history"
EXAMPLE = "substrate completion bash"

#: How many of the newest entries are offered.
_MOST_IDS = 100
_PLAIN_ID = re.compile(r"[A-Za-z0-9._@-]+")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish", "ids"), metavar="bash|zsh|fish",
        help="the shell; `ids` prints what its script offers",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    if args.shell != "ids":
        context.output.block(script_for(args.shell).encode())
        return EXIT_OK
    for name in _ids(context):
        context.output.line(name)
    return EXIT_OK


def _ids(context: Context) -> list[str]:
    """Ids of the newest entries and their sessions and prompts, and of worlds; none on an error."""
    place = place_of(context)
    try:
        with place.existing_history() as store:
            entries = queries.log_entries(store, session=None, limit=_MOST_IDS)
            prompts = queries.prompts_of(store, entries)
        worlds = held_worlds.list_worlds(place)
    except SubstrateError:
        return []
    named = [entry.command_id for entry in entries]
    named += [entry.session_id for entry in entries if entry.session_id]
    named += [prompt.prompt_id for prompt in prompts.values()]
    named += [world.world_id for world in worlds]
    # A shell may expand them, and a store can come from a stranger.
    return [name for name in dict.fromkeys(named) if _PLAIN_ID.fullmatch(name)]
