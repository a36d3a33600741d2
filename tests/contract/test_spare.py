"""The process that waits for the next call takes it, whichever way it comes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from substrate.agent import spare
from substrate.agent.waiting import wait
from substrate.world.recipe import Recipe

pytestmark = pytest.mark.needs("linux")


def test_a_call_that_comes_right_after_the_door_is_served(tmp_path: Path) -> None:
    """Nobody is at the door; what was handed over must not be lost with its caller waiting."""
    root = os.fsencode(tmp_path)
    recipe = Recipe(root + b"/worlds", root, "workspace", (), (), (), (), ())
    ours, theirs = spare.pair()
    waiting = spare.Spare(0, ours)
    caller, given = socket.socketpair()
    with caller, given, socket.socket(socket.AF_UNIX) as door:
        door.bind(root + b"/door")
        door.listen()
        door.setblocking(False)
        waiting.let_listen(door.fileno())
        assert waiting.hand_over(spare.Handed(given, spare.Told))
        handed = wait(theirs, recipe)
        assert handed is not None
        with handed.connection:
            caller.sendall(b"?")
            assert handed.connection.recv(1) == b"?"
        assert not handed.told().is_stale
