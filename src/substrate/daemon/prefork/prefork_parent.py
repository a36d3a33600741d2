"""The daemon's next process (a spare), forked before its call comes; it serves that one call.

While it waits it prepares what every call needs: its own memory pages, a world like the last one
(`world/prewarm/prewarmed_world.py`), and the opened history of its workspace. The fork server
hands it the next connection, whatever the request is. Preparation that does not fit the call is
thrown away, and the call is served the ordinary way in the same process.

The spare of the most recently used workspace may listen itself: then its caller does not wait for
the fork server to wake up first. At any moment exactly one process listens: the fork server or a
spare.

    fork server                     spare
                               ◀─  ready           it can take a call
      listen, with the door     ─▶                  from now on the calls come to it
      call, with a connection   ─▶                  (only to one that does not listen)
                               ◀─  taken           serves the one it took, and listens no more
      told                      ─▶                  the fork server's state, while it begins
                               ◀─  busy            listens no more, until it is `ready` again
                               ◀─  other, with a connection of a caller from elsewhere: it
                                   listens no more, and waits for a call or a `listen` again
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

from substrate.system import clock
from substrate.system.linux import memory
from substrate.system.process import Channel, ClosedError
from substrate.system.process import fd_channel as channels
from substrate.world.prewarm import Ask, Kept, News, Warm
from substrate.world.process import Recipe

#: Longer than it takes to get ready.
_YOUNG_NS = 60_000_000
#: How many times, at most, the fork server learns which pages calls use.
_MOST_LESSONS = 20
#: For how many workspaces a spare waits with a world.
_MOST_WORKSPACES = 3
#: For how long after a walk of a tree its views are used again.
_WALKS_NS = 600 * 1_000_000_000


class Told(NamedTuple):
    """The fork server's state when a call comes."""

    #: The code on disk is no longer the code in memory.
    is_stale: bool = False
    #: The answer to `status`.
    state: Mapping[str, object] = {}


class Handed(NamedTuple):
    """What comes with a connection."""

    connection: socket.socket
    #: A spare that accepted the connection itself may have to wait for this.
    told: Callable[[], Told]


class Pages(NamedTuple):
    """The memory pages that calls use, of those that the fork server shares with its children."""

    spans: memory.Spans = ()
    #: Some pages are missing: the next spare must find out which.
    learns: bool = True


class Spare:
    """The fork server's end of the channel to a spare."""

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self._channel = channel
        self._forked_ns = clock.monotonic_ns()
        self.is_ready = False
        #: Calls come to it, and not to the fork server.
        self.listens = False

    def fileno(self) -> int:
        return self._channel.fileno()

    @property
    def is_young(self) -> bool:
        """Whether it may still be preparing; if it gets a call then, calls come quickly."""
        return clock.monotonic_ns() - self._forked_ns < _YOUNG_NS

    def hand_over(self, handed: Handed) -> bool:
        """Whether it will serve the connection; the caller then closes its copy."""
        try:
            self._channel.send("call", *_plain(handed.told()), fds=(handed.connection.fileno(),))
        except ClosedError:
            return False
        finally:
            self.close()
        return True

    def let_listen(self, door: int) -> None:
        """Let it listen until it reports `taken` or `other`."""
        try:
            self._channel.send("listen", fds=(door,))
            self.listens = True
        except ClosedError:
            pass  # it has ended, and will be reaped

    def hear(self) -> tuple[str, tuple[int, ...]]:
        """Its next message; empty once it has ended."""
        try:
            (said,), fds = self._channel.receive()
        except ClosedError:
            said, fds = "", ()
        self.is_ready = said == "ready" or (self.is_ready and said != "busy")
        self.listens = self.listens and said == "ready"
        return str(said), fds

    def tell(self, told: Told) -> None:
        """Send the state to a spare that has taken a connection."""
        with suppress(ClosedError):
            self._channel.send("told", *_plain(told))
        self.close()

    def close(self) -> None:
        """A spare that was given no connection clears up and ends."""
        self._channel.close()


class Spares:
    """The fork server's spares: one for each of the last workspaces, and one for any other."""

    def __init__(self) -> None:
        #: By the root that the world is for; empty: without a world.
        self._ready: dict[bytes, Spare] = {}
        #: How the worlds of the last workspaces were made; the most recently used comes last.
        self._recipes: dict[bytes, Recipe] = {}
        #: When a command there took a while and changed nothing.
        self._walked_ns: dict[bytes, int] = {}
        #: The view that was reported last: its workspace, its description, and its mount.
        self._kept: tuple[bytes, Kept, int] | None = None
        self.pages = Pages()
        self._lessons = 0

    def __len__(self) -> int:
        return len(self._ready)

    def learn(self, news: News, view: int = -1) -> None:
        """The next call in a workspace may need what this one needed, even its `view`."""
        self.drop_view()
        if news.kept is not None and view >= 0:
            self._kept = (news.root, news.kept, view)
        if news.walked:
            self._walked_ns[news.root] = clock.monotonic_ns()
        self._recipes.pop(news.root, None)
        if news.recipe is not None:
            self._recipes[news.root] = news.recipe
        for root in list(self._recipes)[:-_MOST_WORKSPACES]:
            del self._recipes[root]
            self._walked_ns.pop(root, None)
        for root in [root for root in self._ready if root and root not in self._recipes]:
            self._ready.pop(root).close()

    def learn_pages(self, missed: memory.Spans) -> None:
        """A call had to wait for these pages; empty: unknown ones, which the next spare finds."""
        if missed:
            self._lessons += 1
            self.pages = Pages(memory.joined(self.pages.spans, memory.shared(missed)), False)
        else:
            self.pages = self.pages._replace(learns=self._lessons < _MOST_LESSONS)

    def __iter__(self) -> Iterator[Spare]:
        return iter([*self._ready.values()])

    def listener(self) -> Spare | None:
        """The spare that listens."""
        return next((one for one in self._ready.values() if one.listens), None)

    def next_listener(self) -> Spare | None:
        """The spare that may listen: the most recently used workspace's, if it is ready."""
        found = self._ready.get(next(reversed(self._recipes), b"")) if self._recipes else None
        return found if found is not None and found.is_ready else None

    def take(self, spare: Spare) -> None:
        """It serves a call from now on."""
        for root in [root for root, one in self._ready.items() if one is spare]:
            del self._ready[root]

    def missing(self) -> list[tuple[bytes, Recipe | None]]:
        """The spares that must be forked, the most likely first."""
        wanted = [*reversed(self._recipes.items()), (b"", None)]
        return [(root, recipe) for root, recipe in wanted if root not in self._ready]

    def warm_for(self, root: bytes, ask: Ask) -> Warm | None:
        """For the workspace's next spare, which must close it; None if no command walks there."""
        walked_ns = self._walked_ns.get(root)
        if walked_ns is None or clock.monotonic_ns() - walked_ns > _WALKS_NS:
            return None
        if self._kept is None or self._kept[0] != root:
            return Warm(ask)
        _, kept, view = self._kept
        self._kept = None
        return Warm(ask, kept, view)

    def drop_view(self) -> None:
        """The view will not be used; the process that reported it removes its layer."""
        if self._kept is not None:
            os.close(self._kept[2])
            self._kept = None

    def add(self, root: bytes, spare: Spare) -> None:
        self._ready[root] = spare

    def take_for(self, caller: int, *, is_server: bool) -> Spare | None:
        """The spare for the workspace that contains `caller`'s directory, or the one for any."""
        here = b"" if is_server else directory_of(caller)
        above = [root for root in self._ready if root and is_below(here, root)]
        # The HTTP server says only later where its command will run: probably where the last did.
        likely = [root for root in self._recipes if is_server and root in self._ready]
        found = max(above, key=len, default=likely[-1] if likely else b"")
        return self._ready.pop(found, None)

    def forget(self, pid: int) -> None:
        """It has ended, by itself or killed: there was no call for a long time."""
        for root, spare in list(self._ready.items()):
            if spare.pid == pid:
                self._ready.pop(root).close()
                self._recipes.pop(root, None)

    def close(self) -> None:
        for spare in self._ready.values():
            spare.close()
        self._ready.clear()
        self.drop_view()


def pair() -> tuple[Channel, Channel]:
    """The fork server's end, and the spare's."""
    return channels.pair()


def directory_of(pid: int) -> bytes:
    """The current directory of a process; empty if it is unknown."""
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return b""


def is_below(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _plain(told: Told) -> tuple[bool, dict[str, object]]:
    return told.is_stale, dict(told.state)


def told_by(message: channels.Message) -> Told:
    """The state that came with `call` or `told`."""
    _, is_stale, state = message
    return Told(bool(is_stale), cast("dict[str, object]", state))
