"""In the spare (the preforked process): preparing for a call, and waiting for it.

The fork server's end, and the messages between the two: `daemon/prefork/prefork_parent.py`.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from substrate.daemon.prefork.prefork_parent import (
    Handed,
    Pages,
    Told,
    directory_of,
    is_below,
    told_by,
)
from substrate.recorder import session_context
from substrate.system import daemon_paths
from substrate.system.linux import memory
from substrate.system.process import Channel, ClosedError
from substrate.world.prewarm import Warm, WorldsAhead
from substrate.world.process import Recipe

#: A world keeps every mount of the machine busy, so an unused world must be dropped.
_KEEP_S = 120.0
#: Fetching so few pages during a call takes less than a quarter of a millisecond.
_FEW_FAULTS = 60
_NO_PAGES = Pages()


class Prepared:
    """What a process has ready for its call: a world, memory pages, an open history."""

    def __init__(self, worlds: WorldsAhead) -> None:
        self.worlds = worlds
        self.history = session_context.history_ahead
        #: At the time it was ready: how many page faults it had had, and the pages it had.
        self._ready_at: int | None = None
        self._ready_with: memory.Snapshot | None = None

    def prepare(
        self, channel: Channel, recipe: Recipe | None, warm: Warm | None, pages: Pages, *,
        alone: bool,
    ) -> None:  # fmt: skip
        """Prepare until `channel` has a call. `alone`: see `wait`."""
        if recipe is not None and not channel.ready():
            meanwhile = self._more(channel, recipe, pages)
            self.worlds.prepare(recipe, warm, meanwhile if alone else None)
            if self.worlds.made is not None:
                for _ in meanwhile:
                    pass
        if warm is not None:
            warm.close()
        memory.make_own(pages.spans, channel.ready)
        if self.worlds.made is not None and not channel.ready():
            self._ready_at = memory.faults()
            self._ready_with = memory.Snapshot() if pages.learns else None

    def _more(self, channel: Channel, recipe: Recipe, pages: Pages) -> Iterator[None]:
        """Preparation besides the world, in steps, while other processes make the world."""
        memory.make_own(pages.spans, channel.ready)
        yield
        if not channel.ready() and _stays(recipe.root):
            self.history.open(Path(os.fsdecode(recipe.root)))

    def missed_pages(self) -> memory.Spans | None:
        """After a call: the pages that the next spare should have, as far as this one looked; None:
        it had enough."""
        if self._ready_at is None or not self.worlds.news.was_ahead:
            return None  # otherwise these would be the pages that making a world uses
        if memory.faults() - self._ready_at < _FEW_FAULTS:
            return None
        return () if self._ready_with is None else self._ready_with.used_since()

    def drop(self) -> None:
        """There will be no call."""
        self.worlds.drop()
        self.history.drop()


def wait(
    prepared: Prepared,
    channel: Channel,
    recipe: Recipe | None,
    warm: Warm | None = None,
    pages: Pages = _NO_PAGES,
    *,
    alone: bool = True,
) -> Handed | None:
    """Prepare, and wait for a call; None if there will be none.

    `alone`: no call is being served that would lose processor time to the preparation.
    """
    prepared.prepare(channel, recipe, warm, pages, alone=alone)
    if recipe is not None:
        with suppress(ClosedError):  # a call may have been sent already, and the channel closed
            channel.send("ready")
    waiting = _Waiting(prepared.worlds, channel, recipe, warm)
    try:
        return waiting.run()
    except ClosedError:
        waiting.close()
        prepared.drop()
        return None


class _Waiting:
    """Waits for a call that is handed over, or for one at the door socket."""

    def __init__(
        self, worlds: WorldsAhead, channel: Channel, recipe: Recipe | None, warm: Warm | None
    ) -> None:
        self._worlds = worlds
        self._channel = channel
        self._recipe = recipe
        self._warm = warm
        self._root = b"" if recipe is None else recipe.root
        self._door: socket.socket | None = None

    def run(self) -> Handed:
        """Raises `ClosedError` if there will be no call, or none came for a long time."""
        while True:
            if self._root and not self._is_called_in_time():
                raise ClosedError
            if self._door is not None:
                found = self._accepted(self._door)
                if found is not None:
                    return found
                if not self._is_listening() or not self._channel.ready():
                    continue
                # The fork server is gone, or does not need us any more; or it has a call for us.
                self._door.close()
                self._door = None
            message, fds = self._channel.receive()
            connection = socket.socket(fileno=fds[0])
            if message[0] == "listen":
                self._door = connection
                continue
            self._channel.close()
            return Handed(connection, partial(told_by, message))

    def _is_listening(self) -> bool:
        return self._door is not None

    def close(self) -> None:
        """There will be no call. Close the door first: no caller must wait while we clear up, and
        the fork server must listen again."""
        if self._door is not None:
            self._door.close()
        self._channel.close()

    def _accepted(self, door: socket.socket) -> Handed | None:
        """The connection that came, if it is for our workspace."""
        try:
            connection, _ = door.accept()
        except OSError:  # the caller disconnected
            return None
        # Stop listening while we serve. Otherwise other callers would wait here, even for ever if
        # the fork server is killed.
        door.close()
        self._door = None
        if not self._is_ours(connection):
            with suppress(ClosedError):  # without a fork server, serve it here as usual
                self._channel.send("other", fds=(connection.fileno(),))
                connection.close()
                return None
        with suppress(ClosedError):  # without a fork server it is served anyway
            self._channel.send("taken")
        return Handed(connection, cache(self._hear))

    def _is_ours(self, connection: socket.socket) -> bool:
        try:
            return is_below(directory_of(daemon_paths.peer(connection)[0]), self._root)
        except OSError:
            return False

    def _hear(self) -> Told:
        try:
            return told_by(self._channel.receive()[0])
        except ClosedError:
            return Told()

    def _is_called_in_time(self) -> bool:
        """Whether a call comes before the world is too old. When the machine's mounts change, the
        world is dropped, because it would keep them busy. An outdated world is replaced."""
        with open("/proc/self/mountinfo", "rb") as mountinfo:
            mountinfo.read()
            while True:
                waiting = select.poll()
                ours = {self._channel.fileno()}
                if self._door is not None:
                    ours.add(self._door.fileno())
                stirs = self._worlds.stirs()
                for fd in (*ours, *((stirs,) if stirs >= 0 else ())):
                    waiting.register(fd, select.POLLIN)
                if self._worlds.made is not None:
                    waiting.register(mountinfo.fileno(), select.POLLPRI)
                ready = {fd for fd, _ in waiting.poll(_KEEP_S * 1000)}
                if ready & ours or not ready:
                    return bool(ready)
                self._worlds.drop()  # the open history can stay: see `_stays`
                if mountinfo.fileno() not in ready:
                    self._prepare_anew()

    def _prepare_anew(self) -> None:
        """Close the door first: helpers must not inherit it, and no caller must wait there."""
        assert self._recipe is not None
        with suppress(ClosedError):  # as in `wait`
            if self._door is not None:
                self._door.close()
                self._door = None
                self._channel.send("busy")
            self._worlds.prepare(self._recipe, self._warm)
            self._channel.send("ready")


def _stays(root: bytes) -> bool:
    """Whether the workspace's disk will stay mounted: an open file would prevent unmounting it."""
    with suppress(OSError):
        device = os.stat(root).st_dev
        return any(os.stat(path).st_dev == device for path in (b"/", os.fsencode(__file__)))
    return False
