"""Before a reading verb answers: what a kill interrupted, and which command finishes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from substrate.cli.frame.context import Context

_READING = frozenset(("status", "log", "show", "diff", "stats", "trace", "fsck", "doctor", "blame"))
#: Verbs that only read with some of their actions.
_READING_ACTIONS = {
    "recover": ("list", "show", "search"),
    "world": ("list", "diff", "compare"),
    "checkpoint": ("list",),
    "session": ("list", "current"),
}


def may_be_reading(verb: str, args: Namespace) -> bool:
    """Whether the call changes nothing; `fsck --repair` finishes things itself."""
    if getattr(args, "dry_run", False):
        return True
    if verb == "fsck":
        return not args.repair
    if verb == "status":
        return not args.accept
    return verb in _READING or getattr(args, "action", "") in _READING_ACTIONS.get(verb, ())


def announce_interrupted(context: Context) -> None:
    """A line on stderr for each interrupted operation; with ``--json`` also a field."""
    from substrate.cli.render import (  # only if needed
        place_of,
    )

    place = place_of(context)
    if place.is_inside_world or not _is_anything(place.workspace.root):
        return
    from substrate.recorder import interrupted_operations

    found = interrupted_operations.find(place)
    if not found:
        return
    for one in found:
        context.output.note(one.sentence)
    context.output.fields["interrupted"] = [
        {**one._asdict(), "sentence": one.sentence} for one in found
    ]


def _is_anything(root: Path) -> bool:
    return any(os.path.exists(root / name) for name in (".substrate-git/lock", ".manifold/journal"))
