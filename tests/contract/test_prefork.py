"""The process that waits for the next call takes it, whichever way it comes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from substrate.daemon.prefork import prefork_parent
from substrate.daemon.prefork.prefork_child import Prepared, wait
from substrate.world.prewarm import WorldsAhead
from substrate.world.process.world_spec import Recipe

pytestmark = pytest.mark.needs("linux")


def test_a_call_that_comes_right_after_the_door_is_served(tmp_path: Path) -> None:
    """No client is at the door: a call that was handed over must still be served, not lost."""
    root = os.fsencode(tmp_path)
    recipe = Recipe(root + b"/worlds", root, "workspace", (), (), (), (), ())
    ours, theirs = prefork_parent.pair()
    waiting = prefork_parent.Spare(0, ours)
    caller, given = socket.socketpair()
    with caller, given, socket.socket(socket.AF_UNIX) as door:
        door.bind(root + b"/door")
        door.listen()
        door.setblocking(False)
        waiting.let_listen(door.fileno())
        assert waiting.hand_over(prefork_parent.Handed(given, prefork_parent.Told))
        handed = wait(Prepared(WorldsAhead()), theirs, recipe)
        assert handed is not None
        with handed.connection:
            caller.sendall(b"?")
            assert handed.connection.recv(1) == b"?"
        assert not handed.told().is_stale
