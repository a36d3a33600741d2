"""Choose the world a command runs in, from options and environment."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import HistoryRefusedError, MissingDependencyError, UsageError
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import UserGit
from substrate.world import Wanted, World, choose_world
from substrate.world.strategies import DirectWorld


class Asked(NamedTuple):
    """The options of one call; empty if not given."""

    #: ``--world``: a world is required.
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
    #: ``--writable``: directories beside the workspace that `guarded` and `full` leave open.
    writable: tuple[Path, ...] = ()
    #: ``--check``: without a world there is nothing to check before it arrives.
    check: bool = False
    #: ``--live``: run on the real files, so that the command sees edits as they happen.
    live: bool = False


def world_for(place: Place, asked: Asked) -> World:
    """The best world that works here, or the one that was asked for.

    Raises `MissingDependencyError` if a world is required and not available.
    """
    setting = place.environment.world
    if setting is None and (said := place.environment.get("SUBSTRATE_WORLD")):
        # The user may have meant to require a world: do not run without one.
        raise UsageError(
            f"SUBSTRATE_WORLD does not know {said!r}", hint="set it to enabled or disabled"
        )
    none_wanted = asked.no_world or asked.live or asked.tier == "none"
    needed = asked.world or asked.hold or asked.check or bool(asked.tier and asked.tier != "none")
    if none_wanted and needed:
        raise UsageError(
            "a world is asked for and refused at once",
            hint="leave out --no-world or --live, or else --world, --isolate, --hold and --check",
        )
    if none_wanted or (setting == "disabled" and not needed):
        return DirectWorld("--live: it sees edits as they happen" if asked.live else "asked for")
    if place.workspace.history_refused:
        if needed or setting == "enabled":
            raise HistoryRefusedError(
                "a world is required, and what the command changes could not be brought in:"
                f" {place.workspace.refusal}",
                hint=place.workspace.refusal_hint,
            )
        return DirectWorld(f"no history is kept here ({place.workspace.history_refused})")
    wanted = wanted_world(place, asked)._replace(required=needed or setting == "enabled")
    if not asked.tier and place.environment.get("SUBSTRATE_HEAVY_ISOLATION") == "1":
        return _heaviest(wanted)
    return choose_world(wanted)


def overlay_for(place: Place) -> World:
    """An overlay of tier `workspace`; raises `MissingDependencyError` if not available."""
    wanted = wanted_world(place, Asked())
    if wanted.strategy not in (None, "overlay"):
        raise MissingDependencyError(
            f"there is no overlay with SUBSTRATE_WORLD_STRATEGY={wanted.strategy}",
            hint="unset it",
        )
    return choose_world(wanted._replace(strategy="overlay", required=True))


def wanted_world(place: Place, asked: Asked) -> Wanted:
    """What the options, the environment and the settings of the user ask for."""
    git = UserGit(place.workspace).outside()
    return Wanted(
        root=place.workspace.root,
        store=place.workspace.store,
        tier=asked.tier or "workspace",
        network=asked.network,
        strategy=place.environment.get("SUBSTRATE_WORLD_STRATEGY") or None,
        allow_host_services=(
            asked.allow_host_services or place.user_config().world_allow_host_services
        ),
        writable=asked.writable,
        git_writable=git.writable,
        read_only=git.read_only,
        readable=git.readable,
        why=git.note,
    )


def _heaviest(wanted: Wanted) -> World:
    """SUBSTRATE_HEAVY_ISOLATION: the strongest world available; never refuse the command."""
    try:
        return choose_world(wanted._replace(tier="full", required=True))
    except MissingDependencyError as error:
        why = f"SUBSTRATE_HEAVY_ISOLATION: {error.message}"
        return choose_world(wanted._replace(why="; ".join(filter(None, (why, wanted.why)))))
