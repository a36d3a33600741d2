"""In the spare: getting ready for a call, and waiting for it.

The zygote's end, and what the two say to each other: `agent/spare.py`.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from substrate.agent.spare import Handed, Pages, Told, directory_of, is_below, told_by
from substrate.recorder import place
from substrate.system import agent_place
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import memory
from substrate.world import ahead
from substrate.world.recipe import Recipe

#: A world keeps every mount of the machine in use: one that nobody asks for must go.
_KEEP_S = 120.0
#: So few pages that a call had to wait for take less than a quarter of a millisecond.
_FEW_FAULTS = 60
_NO_PAGES = Pages()

#: Once it was ready: how many pages had been fetched for it, and what it had.
_ready_at: int | None = None
_ready_with: memory.Snapshot | None = None


def wait(
    channel: Channel,
    recipe: Recipe | None,
    warm: ahead.Warm | None = None,
    pages: Pages = _NO_PAGES,
    *,
    alone: bool = True,
) -> Handed | None:
    """Get ready, and wait for a call; None if there will be none.

    `alone`: no call is being served, from which it would take a processor.
    """
    global _ready_at, _ready_with
    if recipe is not None and not channel.ready():
        meanwhile = _more(channel, recipe, pages)
        ahead.prepare(recipe, warm, meanwhile if alone else None)
        if ahead.is_made():
            for _ in meanwhile:
                pass
    if warm is not None:
        warm.close()
    memory.make_own(pages.spans, channel.ready)
    if recipe is not None:
        if ahead.is_made() and not channel.ready():
            _ready_at = memory.faults()
            _ready_with = memory.Snapshot() if pages.learns else None
        with suppress(ClosedError):  # a call may have been sent by now, and nothing comes after it
            channel.send("ready")
    waiting = _Waiting(channel, recipe, warm)
    try:
        return waiting.run()
    except ClosedError:
        waiting.close()
        _drop_all()
        return None


def _more(channel: Channel, recipe: Recipe, pages: Pages) -> Iterator[None]:
    """What there is to do besides its world, in steps, while others make that."""
    memory.make_own(pages.spans, channel.ready)
    yield
    if not channel.ready() and _stays(recipe.root):
        place.open_ahead(Path(os.fsdecode(recipe.root)))


def missed_pages() -> memory.Spans | None:
    """After a call: what the next spare should have, as far as this one looked; None: it is well
    provided for."""
    if _ready_at is None or not ahead.news.was_ahead:
        return None  # or it would be what the making of a world uses
    if memory.faults() - _ready_at < _FEW_FAULTS:
        return None
    return () if _ready_with is None else _ready_with.used_since()


class _Waiting:
    """For a call that is handed over, or one at the door."""

    def __init__(
        self, channel: Channel, recipe: Recipe | None, warm: ahead.Warm | None = None
    ) -> None:
        self._channel = channel
        self._recipe = recipe
        self._warm = warm
        self._root = b"" if recipe is None else recipe.root
        self._door: socket.socket | None = None

    def run(self) -> Handed:
        """`ClosedError` if there will be no call, or none came for long."""
        while True:
            if self._root and not self._is_called_in_time():
                raise ClosedError
            if self._door is not None:
                found = self._accepted(self._door)
                if found is not None:
                    return found
                if not self._is_listening() or not self._channel.ready():
                    continue
                # The zygote is gone, or does not want us any more; or it has a call for us.
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
        """There will be no call: nobody may come now and wait while we clear up, and the zygote
        listens again."""
        if self._door is not None:
            self._door.close()
        self._channel.close()

    def _accepted(self, door: socket.socket) -> Handed | None:
        """The call that came, if it is one for us."""
        try:
            connection, _ = door.accept()
        except OSError:  # it changed its mind
            return None
        # Nobody may find us listening while we serve, or for ever if the zygote is killed.
        door.close()
        self._door = None
        if not self._is_ours(connection):
            with suppress(ClosedError):  # without a zygote it is served here, in the ordinary way
                self._channel.send("other", fds=(connection.fileno(),))
                connection.close()
                return None
        with suppress(ClosedError):  # without a zygote it is served all the same
            self._channel.send("taken")
        return Handed(connection, cache(self._hear))

    def _is_ours(self, connection: socket.socket) -> bool:
        try:
            return is_below(directory_of(agent_place.peer(connection)[0]), self._root)
        except OSError:
            return False

    def _hear(self) -> Told:
        try:
            return told_by(self._channel.receive()[0])
        except ClosedError:
            return Told()

    def _is_called_in_time(self) -> bool:
        """Whether a call comes before the world is old. It goes when what is mounted on the machine
        changes, too: it would hold on to that. One that is out of date gives way to a new one."""
        with open("/proc/self/mountinfo", "rb") as mountinfo:
            mountinfo.read()
            while True:
                waiting = select.poll()
                ours = {self._channel.fileno()}
                if self._door is not None:
                    ours.add(self._door.fileno())
                stirs = ahead.stirs()
                for fd in (*ours, *((stirs,) if stirs >= 0 else ())):
                    waiting.register(fd, select.POLLIN)
                if ahead.is_made():
                    waiting.register(mountinfo.fileno(), select.POLLPRI)
                ready = {fd for fd, _ in waiting.poll(_KEEP_S * 1000)}
                if ready & ours or not ready:
                    return bool(ready)
                ahead.drop()  # the open history does not mind: see `_stays`
                if mountinfo.fileno() not in ready:
                    self._prepare_anew()

    def _prepare_anew(self) -> None:
        """What is forked for it must not have the door, and nobody must wait there meanwhile."""
        assert self._recipe is not None
        with suppress(ClosedError):  # as in `wait`
            if self._door is not None:
                self._door.close()
                self._door = None
                self._channel.send("busy")
            ahead.prepare(self._recipe, self._warm)
            self._channel.send("ready")


def _stays(root: bytes) -> bool:
    """Whether nobody will unmount the workspace's disk: an open file would be in the way."""
    with suppress(OSError):
        device = os.stat(root).st_dev
        return any(os.stat(path).st_dev == device for path in (b"/", os.fsencode(__file__)))
    return False


def _drop_all() -> None:
    ahead.drop()
    place.drop_ahead()
