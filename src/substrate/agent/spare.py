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
from substrate.system import clock
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import memory
from substrate.world import ahead

#: A world keeps every mount of the machine in use: one that nobody asks for must go.
_KEEP_S = 120.0
#: Longer than it takes to get ready.
_YOUNG_NS = 60_000_000
#: For so many workspaces a process waits with a world.
_MOST_WORKSPACES = 3


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
        self._forked_ns = clock.monotonic_ns()

    @property
    def is_young(self) -> bool:
        """Whether it may still be getting ready: the calls come quickly."""
        return clock.monotonic_ns() - self._forked_ns < _YOUNG_NS

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


class Spares:
    """The zygote's: one process for each of the last workspaces, and one for any other."""

    def __init__(self) -> None:
        #: By the root that its world is for; empty: without a world.
        self._ready: dict[bytes, Spare] = {}
        #: How the worlds of the last workspaces were made; the last used stands last.
        self._recipes: dict[bytes, ahead.Recipe] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def learn(self, news: ahead.News) -> None:
        """What a call needed, the next one in that workspace may need, too."""
        self._recipes.pop(news.root, None)
        if news.recipe is not None:
            self._recipes[news.root] = news.recipe
        for root in list(self._recipes)[:-_MOST_WORKSPACES]:
            del self._recipes[root]
        for root in [root for root in self._ready if root and root not in self._recipes]:
            self._ready.pop(root).close()

    def missing(self) -> list[tuple[bytes, ahead.Recipe | None]]:
        """Those that are to be forked, the most likely first."""
        wanted = [*reversed(self._recipes.items()), (b"", None)]
        return [(root, recipe) for root, recipe in wanted if root not in self._ready]

    def add(self, root: bytes, spare: Spare) -> None:
        self._ready[root] = spare

    def take_for(self, caller: int, *, is_server: bool) -> Spare | None:
        """The one for the workspace that the process `caller` stands in, or the one for any."""
        here = b"" if is_server else _directory_of(caller)
        above = [root for root in self._ready if root and _is_below(here, root)]
        # Where its commands will run the server only says later: most likely where the last did.
        likely = [root for root in self._recipes if is_server and root in self._ready]
        found = max(above, key=len, default=likely[-1] if likely else b"")
        return self._ready.pop(found, None)

    def forget(self, pid: int) -> None:
        """It has ended, by itself or by somebody's hand: nobody asked for long."""
        for root, spare in list(self._ready.items()):
            if spare.pid == pid:
                self._ready.pop(root).close()
                self._recipes.pop(root, None)

    def close(self) -> None:
        for spare in self._ready.values():
            spare.close()
        self._ready.clear()


def pair() -> tuple[Channel, Channel]:
    """The zygote's end, and the spare's."""
    return channels.pair()


def _directory_of(pid: int) -> bytes:
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return b""


def _is_below(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def wait(channel: Channel, recipe: ahead.Recipe | None) -> Handed | None:
    """In the spare: get ready, and wait for a call; None if there will be none."""
    if recipe is not None and not channel.ready():
        ahead.prepare(recipe)
    if ahead.is_made() and recipe is not None and not channel.ready() and _stays(recipe.root):
        place.open_ahead(Path(os.fsdecode(recipe.root)))
    memory.make_own(channel.ready)
    if recipe is not None and not _is_called_in_time(channel):
        _drop_all()
        return None
    try:
        message, fds = channel.receive()
    except ClosedError:
        _drop_all()
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


def _is_called_in_time(channel: Channel) -> bool:
    """Whether a call comes before the world is old. It goes when what is mounted on the machine
    changes, too: it would hold on to that."""
    with open("/proc/self/mountinfo", "rb") as mountinfo:
        mountinfo.read()
        waiting = select.poll()
        waiting.register(channel.fileno(), select.POLLIN)
        waiting.register(mountinfo.fileno(), select.POLLPRI)
        ready = {fd for fd, _ in waiting.poll(_KEEP_S * 1000)}
    if channel.fileno() not in ready and ready:
        ahead.drop()  # the open history does not mind: see `_stays`
        ready = {channel.fileno()} if channel.ready(_KEEP_S) else set()
    return bool(ready)


def _drop_all() -> None:
    ahead.drop()
    place.drop_ahead()
