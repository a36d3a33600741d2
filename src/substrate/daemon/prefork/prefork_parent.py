"""The agent's next process, forked before its call comes; it serves that one call and ends.

While nobody waits it has done what every call needs: memory of its own, a world like the last one
(`world/ahead.py`), and the history of its workspace opened. The zygote hands it the next
connection, whatever it asks for: what does not fit the call is thrown away, and the call goes the
ordinary way in the same process.

The one for the workspace that was last used may listen itself: its caller then need not wait for
the zygote to wake up first. At any moment one process listens, the zygote or a spare.

    zygote                          spare
                                ◀─  ready           it can take a call
      listen, with the door     ─▶                  from now on the calls come to it
      call, with a connection   ─▶                  (only to one that does not listen)
                                ◀─  taken           serves the one it took, and listens no more
      told                      ─▶                  what the zygote knows, while it begins
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

from substrate.system import channel as channels
from substrate.system import clock
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import memory
from substrate.world import ahead
from substrate.world.kept import Kept
from substrate.world.news import News
from substrate.world.recipe import Recipe

#: Longer than it takes to get ready.
_YOUNG_NS = 60_000_000
#: So often it is learned which pages calls use.
_MOST_LESSONS = 20
#: For so many workspaces a process waits with a world.
_MOST_WORKSPACES = 3
#: After a walk of a tree, so long views of it are used again.
_WALKS_NS = 600 * 1_000_000_000


class Told(NamedTuple):
    """What the zygote knows when a call comes."""

    #: The code on disk is no longer the code in memory.
    is_stale: bool = False
    #: The answer to `status`.
    state: Mapping[str, object] = {}


class Handed(NamedTuple):
    """What comes with a connection."""

    connection: socket.socket
    #: Who took the connection itself may have to wait for it.
    told: Callable[[], Told]


class Pages(NamedTuple):
    """The memory that calls use, of that which the zygote shares with its children."""

    spans: memory.Spans = ()
    #: Something is missing: the next one is to look closely.
    learns: bool = True


class Spare:
    """The zygote's end."""

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self._channel = channel
        self._forked_ns = clock.monotonic_ns()
        self.is_ready = False
        #: Calls come to it, and not to the zygote.
        self.listens = False

    def fileno(self) -> int:
        return self._channel.fileno()

    @property
    def is_young(self) -> bool:
        """Whether it may still be getting ready: the calls come quickly."""
        return clock.monotonic_ns() - self._forked_ns < _YOUNG_NS

    def hand_over(self, handed: Handed) -> bool:
        """Whether it will serve the connection; it is given away then, and ours to close."""
        try:
            self._channel.send("call", *_plain(handed.told()), fds=(handed.connection.fileno(),))
        except ClosedError:
            return False
        finally:
            self.close()
        return True

    def let_listen(self, door: int) -> None:
        """Until it has `taken` a connection, or one for an`other`."""
        try:
            self._channel.send("listen", fds=(door,))
            self.listens = True
        except ClosedError:
            pass  # it has ended, and will be buried

    def hear(self) -> tuple[str, tuple[int, ...]]:
        """What it has to say; nothing once it has ended."""
        try:
            (said,), fds = self._channel.receive()
        except ClosedError:
            said, fds = "", ()
        self.is_ready = said == "ready" or (self.is_ready and said != "busy")
        self.listens = self.listens and said == "ready"
        return str(said), fds

    def tell(self, told: Told) -> None:
        """To one that has taken a connection."""
        with suppress(ClosedError):
            self._channel.send("told", *_plain(told))
        self.close()

    def close(self) -> None:
        """Without a connection given before, it clears up after itself and ends."""
        self._channel.close()


class Spares:
    """The zygote's: one process for each of the last workspaces, and one for any other."""

    def __init__(self) -> None:
        #: By the root that its world is for; empty: without a world.
        self._ready: dict[bytes, Spare] = {}
        #: How the worlds of the last workspaces were made; the last used stands last.
        self._recipes: dict[bytes, Recipe] = {}
        #: When a command there took its time and changed nothing.
        self._walked_ns: dict[bytes, int] = {}
        #: The view that was told of last: whose, and its mount.
        self._kept: tuple[bytes, Kept, int] | None = None
        self.pages = Pages()
        self._lessons = 0

    def __len__(self) -> int:
        return len(self._ready)

    def learn(self, news: News, view: int = -1) -> None:
        """What a call needed, the next one in that workspace may need, too; even its `view`."""
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
        """A call had to wait for these; none: for some, and the next one can tell which."""
        if missed:
            self._lessons += 1
            self.pages = Pages(memory.joined(self.pages.spans, memory.shared(missed)), False)
        else:
            self.pages = self.pages._replace(learns=self._lessons < _MOST_LESSONS)

    def __iter__(self) -> Iterator[Spare]:
        return iter([*self._ready.values()])

    def listener(self) -> Spare | None:
        """The one that listens."""
        return next((one for one in self._ready.values() if one.listens), None)

    def next_listener(self) -> Spare | None:
        """The one that may: for the workspace that was last used, if it is ready."""
        found = self._ready.get(next(reversed(self._recipes), b"")) if self._recipes else None
        return found if found is not None and found.is_ready else None

    def take(self, spare: Spare) -> None:
        """It serves a call from now on."""
        for root in [root for root, one in self._ready.items() if one is spare]:
            del self._ready[root]

    def missing(self) -> list[tuple[bytes, Recipe | None]]:
        """Those that are to be forked, the most likely first."""
        wanted = [*reversed(self._recipes.items()), (b"", None)]
        return [(root, recipe) for root, recipe in wanted if root not in self._ready]

    def warm_for(self, root: bytes, ask: ahead.Ask) -> ahead.Warm | None:
        """For the next one of that workspace, which is to close it; None if nobody walks there."""
        walked_ns = self._walked_ns.get(root)
        if walked_ns is None or clock.monotonic_ns() - walked_ns > _WALKS_NS:
            return None
        if self._kept is None or self._kept[0] != root:
            return ahead.Warm(ask)
        _, kept, view = self._kept
        self._kept = None
        return ahead.Warm(ask, kept, view)

    def drop_view(self) -> None:
        """Nobody is going to use it; who told of it clears its layer away."""
        if self._kept is not None:
            os.close(self._kept[2])
            self._kept = None

    def add(self, root: bytes, spare: Spare) -> None:
        self._ready[root] = spare

    def take_for(self, caller: int, *, is_server: bool) -> Spare | None:
        """The one for the workspace that the process `caller` stands in, or the one for any."""
        here = b"" if is_server else directory_of(caller)
        above = [root for root in self._ready if root and is_below(here, root)]
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
        self.drop_view()


def pair() -> tuple[Channel, Channel]:
    """The zygote's end, and the spare's."""
    return channels.pair()


def directory_of(pid: int) -> bytes:
    """Where it stands; empty if nobody can say."""
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return b""


def is_below(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _plain(told: Told) -> tuple[bool, dict[str, object]]:
    return told.is_stale, dict(told.state)


def told_by(message: channels.Message) -> Told:
    """What came with `call` or `told`."""
    _, is_stale, state = message
    return Told(bool(is_stale), cast("dict[str, object]", state))
