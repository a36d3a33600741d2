"""Several held worlds beside each other: attempts at one task, compared, one of them picked."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.history.arrival import Held
from substrate.model import Node, RelPath
from substrate.recorder.arrival import bring_in, held_worlds
from substrate.recorder.arrival.held_worlds import WorldDiff
from substrate.recorder.session_context import Place


class Attempt(NamedTuple):
    """One held world, with how its command ended."""

    diff: WorldDiff
    exit: int | None
    duration_ms: int | None
    #: How its check ended, see `recorder/command/check_change.py`; None: it had none.
    check: dict[str, object] | None

    @property
    def world(self) -> Held:
        return self.diff.world

    @property
    def number(self) -> int | None:
        found = self.world.about.get("attempt")
        return found if isinstance(found, int) else None

    def node(self, path: RelPath) -> Node | None:
        """What a path becomes; None if it stays as it is."""
        return next((one.new for one in self.diff.files if one.path == path), None)


def attempts(place: Place, names: tuple[str, ...]) -> list[Attempt]:
    """The held worlds with these ids, in this order. Changes nothing."""
    return [_attempt(place, held_worlds.diff_world(place, name)) for name in names]


def of_group(place: Place, group: str) -> list[Held]:
    """The worlds of one call of `substrate try` that are still held, in the order of attempts."""
    found = [one for one in held_worlds.list_worlds(place) if one.group == group]
    return sorted(found, key=lambda one: int(str(one.about.get("attempt", 0))))


def pick(place: Place, name: str) -> tuple[Held, bring_in.Brought, list[Held]]:
    """Apply a world, then discard the others of its group; returns those.

    If not all of it arrives, the others stay held.
    """
    world = held_worlds.found(place, name)
    if not world.group:
        raise RefusedError(
            f"{world.world_id} is no attempt of `substrate try`: there are no others to discard",
            hint=f"`substrate world apply {world.world_id}` applies it",
        )
    others = [one for one in of_group(place, world.group) if one.world_id != world.world_id]
    for one in others:  # before anything changes: one that still runs cannot be discarded
        held_worlds.check_ended(one)
    applied, brought = held_worlds.apply_world(place, world.world_id)
    if brought.causes or brought.conflicts:
        return applied, brought, []
    return applied, brought, [held_worlds.discard_world(place, one.world_id) for one in others]


def _attempt(place: Place, diff: WorldDiff) -> Attempt:
    with place.existing_history() as store:
        entry = store.ledger.by_command_id(diff.world.command_id)
    check = entry.detail.get("check") if entry is not None else None
    ended = (entry.exit, entry.duration_ms) if entry is not None else (None, None)
    return Attempt(diff, *ended, check if isinstance(check, dict) else None)
