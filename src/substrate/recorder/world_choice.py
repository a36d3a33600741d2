"""From what was asked for (options, environment) to the world a command runs in."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import UsageError
from substrate.recorder.place import Place
from substrate.world.choose import choose_world
from substrate.world.direct import DirectWorld
from substrate.world.protocol import Wanted, World


class Asked(NamedTuple):
    """The words of one call; empty where nothing was said."""

    #: ``--world``: nothing less will do.
    world: bool = False
    #: ``--no-world``
    no_world: bool = False
    #: ``--isolate``
    tier: str = ""
    #: ``--net``
    network: str = "open"
    #: ``--hold``: without a world there is nothing to hold.
    hold: bool = False
    #: ``--allow-host-services``
    allow_host_services: bool = False


def world_for(place: Place, asked: Asked) -> World:
    """The best world that works here, or what was asked for; `MissingDependencyError` if that
    was required and cannot be had."""
    setting = place.environment.world
    none_wanted = asked.no_world or asked.tier == "none"
    needed = asked.world or asked.hold or bool(asked.tier and asked.tier != "none")
    if none_wanted and needed:
        raise UsageError(
            "a world is asked for and refused at once",
            hint="leave out one of --no-world and --world, --isolate or --hold",
        )
    if none_wanted or (setting == "disabled" and not needed):
        return DirectWorld("asked for")
    if place.workspace.history_refused and not needed:
        return DirectWorld(f"no history is kept here ({place.workspace.history_refused})")
    return choose_world(
        Wanted(
            root=place.workspace.root,
            store=place.workspace.store,
            tier=asked.tier or "workspace",
            required=needed or setting == "enabled",
            network=asked.network,
            allow_host_services=asked.allow_host_services,
        )
    )
