"""The agent's next process, forked before its call comes; it serves that one call and ends.

While nobody waits it has done what every call needs: memory of its own, a world like the last one
(`world/ahead.py`), and the history of its workspace opened. The zygote hands it the next
connection, whatever it asks for: what does not fit the call is thrown away, and the call goes the
ordinary way in the same process.
"""

from __future__ import annotations

import _socket
import os
import select
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

from substrate.recorder import place
from substrate.system import channel as channels
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import memory
from substrate.world import ahead

#: A world keeps every mount of the machine in use: one that nobody asks for must go.
_KEEP_WORLD_S = 120.0


class Handed(NamedTuple):
    """What comes with a connection."""

    connection: _socket.socket
    is_stale: bool
    #: The answer to `status`, as of now.
    state: dict[str, object]


class Spare:
    """The zygote's end."""

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self._channel = channel

    def hand_over(self, handed: Handed) -> bool:
        """Whether it will serve the connection; it is given away then, and ours to close."""
        try:
            self._channel.send(
                "call", handed.is_stale, handed.state, fds=(handed.connection.fileno(),)
            )
        except ClosedError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        """Without a connection given before, it clears up after itself and ends."""
        self._channel.close()


def pair() -> tuple[Channel, Channel]:
    """The zygote's end, and the spare's."""
    return channels.pair()


def wait(channel: Channel, recipe: ahead.Recipe | None) -> Handed | None:
    """In the spare: get ready, and wait for a call; None if there will be none."""
    if recipe is not None and not channel.ready():
        ahead.prepare(recipe)
    if ahead.is_made() and recipe is not None and not channel.ready() and _stays(recipe.root):
        place.open_ahead(Path(os.fsdecode(recipe.root)))
    memory.make_own(channel.ready)
    if ahead.is_made():
        _until_called_or_old(channel)
    try:
        message, fds = channel.receive()
    except ClosedError:
        ahead.drop()
        return None
    channel.close()
    _, is_stale, state = message
    return Handed(
        _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fds[0]),
        bool(is_stale),
        cast("dict[str, object]", state),
    )


def _stays(root: bytes) -> bool:
    """Whether nobody will unmount the workspace's disk: an open file would be in the way."""
    with suppress(OSError):
        device = os.stat(root).st_dev
        return any(os.stat(path).st_dev == device for path in (b"/", os.fsencode(__file__)))
    return False


def _until_called_or_old(channel: Channel) -> None:
    """The world goes when what is mounted on the machine changes: it would hold on to that."""
    with open("/proc/self/mountinfo", "rb") as mountinfo:
        mountinfo.read()
        waiting = select.poll()
        waiting.register(channel.fileno(), select.POLLIN)
        waiting.register(mountinfo.fileno(), select.POLLPRI)
        ready = {fd for fd, _ in waiting.poll(_KEEP_WORLD_S * 1000)}
    if channel.fileno() not in ready:
        ahead.drop()
        place.drop_ahead()
