"""The waiting side of calls from inside a world: it costs nothing until the first call."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from substrate.recorder import Kept
from substrate.recorder.command import NestedRequest, Scene, UndoWish
from substrate.system.process import Channel, ClosedError, fork_child
from substrate.system.process import fd_channel as channels

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrate.broker.answer_call import Answer

#: How long the broker may take to end the calls under way.
_PATIENCE_S = 10.0


class InsideCalls:
    """Implements `recorder.command.Inside`. For one command only."""

    def __init__(self, load: Callable[[], Answer]) -> None:
        """`load` is called in the broker's process: it imports what answering needs."""
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

        from substrate.broker import broker

        scene = self._scene
        assert scene is not None
        if self._kept is not None:
            self._kept.let_go()
        ours, theirs = channels.pair()
        with warnings.catch_warnings():
            # Our threads watch the network and the output; the child uses nothing that they hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = fork_child(
                lambda: broker.serve(listener, theirs, init_pid, scene, self._load)
            )
        theirs.close()
        self._channel = ours

    def finish(self) -> NestedRequest:
        if self._channel is None:
            return NestedRequest()
        try:
            self._channel.send("finish")
            if not self._channel.ready(_PATIENCE_S):
                return NestedRequest()
            message, _ = self._channel.receive()
            undos = [UndoWish(*wish) for wish in cast("list[tuple[str]]", message[1])]
            return NestedRequest(tuple(undos), cast("tuple[str, ...]", message[2]))
        except ClosedError:
            return NestedRequest()
        finally:
            self._channel.close()
            self._end()

    def _end(self) -> None:
        """Kill the broker and its calls: their callers have outlived the command."""
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(self._pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self._pid, 0)
