"""A command that ran, but whose change is not (fully) in the tree: its outcome and last line.

The exit status is then 122 if the command's own was 0. A hold that the user asked for
(``--hold``) is such an outcome, too, but does not change the exit status.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from substrate.errors import EXIT_NOT_ALL_APPLIED
from substrate.model import RelPath, display

CONFLICT, HELD, APPLY_FAILED = "conflict", "held", "apply_failed"
_SHOWN = 8


class NotArrived(NamedTuple):
    """What kept the change out; as text it is the last line on stderr."""

    reason: str
    paths: tuple[RelPath, ...]
    #: What to type.
    next_steps: str

    def __str__(self) -> str:
        about = self.names or "the change"
        return (
            f"{about} ({self.reason}): the command ran, but not all of its change is in your tree."
            f" {self.next_steps}"
        )

    @property
    def names(self) -> str:
        more = len(self.paths) - _SHOWN
        shown = ", ".join(display(path) for path in self.paths[:_SHOWN])
        return f"{shown} and {more} more" if more > 0 else shown


def status(command_exit: int) -> int:
    """The exit status of a call whose command ended with `command_exit`."""
    return command_exit or EXIT_NOT_ALL_APPLIED


def world_steps(world_id: str) -> str:
    return (
        f"Look: substrate world diff {world_id}. Apply: substrate world apply {world_id}."
        f" Discard: substrate world discard {world_id}"
    )


def own_version(command_id: str) -> list[str]:
    """Where the command's own version of conflicting paths is; empty without an id."""
    show = f"`substrate recover show {command_id}`, `substrate recover restore {command_id}`"
    return [f"the command's own version is kept: {show}"] if command_id else []


def of_conflicts(
    command_id: str, conflicts: Collection[RelPath], world_id: str, *, is_kept_version: bool
) -> NotArrived:
    """`world_id`: the world that holds the rest, or empty; `is_kept_version`: the command's version
    is under a recovery ref with its id."""
    if world_id:
        steps = world_steps(world_id)
    elif is_kept_version:
        steps = (
            f"Look: substrate recover show {command_id}."
            f" Apply: substrate recover restore {command_id}."
            " Discard: nothing to do, your files are as they were"
        )
    else:  # the command removed what another process has worked on since
        steps = f"Look: substrate show {command_id}. Apply: remove it yourself. Discard: keep it"
    return NotArrived(CONFLICT, tuple(conflicts), steps)
