"""Where coding agents are recorded: in the projects for which the user agreed to it.

The user agrees by `substrate connect`: in scope `user` for every project, in the other scopes for
one. `agents.allow` and `agents.deny` in the user's own settings name projects by patterns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

from substrate.recorder.agent_events import calling_agent
from substrate.recorder.session_context import Place


def as_agreed(place: Place, *, no_record: bool = False) -> Place:
    """The place for a command: one without a record if the user wants none of it."""
    if no_record:
        return place._replace(workspace=place.workspace.unwanted("--no-record"))
    is_of_agent = calling_agent.session_of(place.environment) is not None
    if is_of_agent and not place.workspace.history_refused and is_denied(place):
        return place._replace(workspace=place.workspace.unwanted("agents.deny names it"))
    return place


def is_denied(place: Place) -> bool:
    """Whether nothing that an agent does here is recorded."""
    return _is_named(place, place.user_config().agents_deny)


def may_begin(place: Place, agent: str) -> bool:
    """Whether a report of the agent may begin a history here; `is_denied` is asked first."""
    allowed = place.user_config().agents_allow
    if allowed:
        return _is_named(place, allowed)
    from substrate.coding_agents import covers  # not for commands

    return covers(place.environment.substrate_home, agent, place.workspace.root)


def _is_named(place: Place, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches the project, or a directory that contains it."""
    home = place.environment.home
    root = os.fspath(place.workspace.root)
    for pattern in patterns:
        wanted = pattern.rstrip("/")
        if (wanted == "~" or wanted.startswith("~/")) and home is not None:
            wanted = os.path.realpath(home) + wanted[1:]
        here = root
        while here not in ("", "/"):
            if fnmatchcase(here, wanted):
                return True
            here = os.path.dirname(here)
        if not wanted and pattern:
            return True  # "/": every project
    return False
