"""The waiting side of calls from inside a world: it costs nothing as long as nobody calls."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from substrate.recorder.inside import Asked, Scene, UndoWish
from substrate.recorder.place import Kept
from substrate.system import channel as channels
from substrate.system.channel import Channel, ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrate.inside.answering import Answer

#: How long the broker may take to end what is under way.
_PATIENCE_S = 10.0


class InsideCalls:
    """Implements `recorder.inside.Inside`. For one command only."""

    def __init__(self, load: Callable[[], Answer]) -> None:
        """`load` is called in the broker's process: it imports what answering takes."""
        self._load = load
        self._scene: Scene | None = None
        self._kept: Kept | None = None
        self._channel: Channel | None = None
        self._pid = 0

    def open(self, scene: Scene) -> None:
        self._kept = scene.place.kept
        self._scene = scene._replace(place=scene.place._replace(kept=None))

    def on_call(self, listener: int, init_pid: int) -> None:
        import warnings

        from substrate.inside import broker

        assert self._scene is not None
        if self._kept is not None:
            self._kept.let_go()
        ours, theirs = channels.pair()
        with warnings.catch_warnings():
            # Threads of ours watch the network and the output: what they hold is not used there.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            broker.serve(listener, theirs, init_pid, self._scene, self._load)
        theirs.close()
        self._channel = ours

    def finish(self) -> Asked:
        if self._channel is None:
            return Asked()
        try:
            self._channel.send("finish")
            if not self._channel.ready(_PATIENCE_S):
                return Asked()
            message, _ = self._channel.receive()
            undos = [UndoWish(*wish) for wish in cast("list[tuple[str]]", message[1])]
            return Asked(tuple(undos), cast("tuple[str, ...]", message[2]))
        except ClosedError:
            return Asked()
        finally:
            self._channel.close()
            self._end()

    def _end(self) -> None:
        """It has nothing more to do, and whoever it still looks after has nobody to answer to."""
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(self._pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self._pid, 0)
