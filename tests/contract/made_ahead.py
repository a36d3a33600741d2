"""The worlds made ahead of a process in which the fixture `ahead` is in force."""

from __future__ import annotations

from substrate.world.prewarm import WorldsAhead, plain_worlds


def ahead() -> WorldsAhead:
    found = plain_worlds.current.worlds
    assert isinstance(found, WorldsAhead)
    return found
