"""The worlds made ahead of a process in which the fixture `ahead` is in force."""

from __future__ import annotations

from substrate.world.prewarm import WorldsAhead, no_prewarm


def ahead() -> WorldsAhead:
    found = no_prewarm.current.worlds
    assert isinstance(found, WorldsAhead)
    return found
