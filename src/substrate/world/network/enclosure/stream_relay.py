"""Bytes between two connected stream sockets, both ways, until both have ended."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from substrate.world.network.enclosure.event_loop import READ, WRITE, EventLoop

#: How much may wait for a slow reader before the other side has to wait.
_WINDOW_BYTES = 256 * 1024
Tap = Callable[[bytes], None]


class _Side:
    def __init__(self, own: socket.socket) -> None:
        self.own = own
        #: Bytes still to be written to it.
        self.waiting = bytearray()
        self.ended = False  # nothing more will be read from it
        self.shut = False  # nothing more will be written to it


class StreamRelay:
    """Owns both sockets; `closed` is called once, when they are gone."""

    def __init__(
        self,
        loop: EventLoop,
        near: socket.socket,
        far: socket.socket,
        *,
        tap: Tap | None = None,
        closed: Callable[[StreamRelay], None] | None = None,
    ) -> None:
        """`tap` sees what `far` sends, before `near` does."""
        self._loop = loop
        self._near, self._far = _Side(near), _Side(far)
        self._tap = tap
        self._closed = closed
        self._over = False
        for side, other in ((self._near, self._far), (self._far, self._near)):
            side.own.setblocking(False)
            self._watch(side, other)

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        for side in (self._near, self._far):
            self._loop.forget(side.own.fileno())
            side.own.close()
        if self._closed is not None:
            self._closed(self)

    def _watch(self, side: _Side, other: _Side) -> None:
        events = 0
        if not side.ended and len(other.waiting) < _WINDOW_BYTES:
            events |= READ
        if side.waiting:
            events |= WRITE
        if not events and side.ended and other.ended:
            self._loop.forget(side.own.fileno())
            return
        if not events:
            # An idle side with nothing requested would still wake up for a hang-up, for ever.
            self._loop.forget(side.own.fileno())
            return
        self._loop.watch(side.own.fileno(), events, lambda seen: self._ready(side, other, seen))

    def _ready(self, side: _Side, other: _Side, seen: int) -> None:
        try:
            if seen & WRITE:
                self._write(side)
            if seen & ~WRITE and not side.ended and len(other.waiting) < _WINDOW_BYTES:
                self._read(side, other)
            if side.ended and not other.waiting and not other.shut:
                other.shut = True
                with suppress(OSError):
                    other.own.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._reset()
            return
        if self._near.shut and self._far.shut:
            self.close()
            return
        self._watch(side, other)
        self._watch(other, side)

    def _read(self, side: _Side, other: _Side) -> None:
        data = side.own.recv(_WINDOW_BYTES)
        if not data:
            side.ended = True
            return
        if self._tap is not None and side is self._far:
            self._tap(data)
        other.waiting += data
        self._write(other)

    def _write(self, side: _Side) -> None:
        try:
            while side.waiting:
                sent = side.own.send(side.waiting)
                del side.waiting[:sent]
        except (BlockingIOError, InterruptedError):
            return
        # What ended on the other side ends here once all of it is written.
        other = self._far if side is self._near else self._near
        if other.ended and not side.shut:
            side.shut = True
            side.own.shutdown(socket.SHUT_WR)

    def _reset(self) -> None:
        """One side broke: the other must see an error, not an orderly end."""
        for side in (self._near, self._far):
            abort_on_close(side.own)
        self.close()


def abort_on_close(connection: socket.socket) -> None:
    """Closing it will reset the connection."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
