"""Datagrams out of an enclosure and back: one socket outside for each sender inside."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from substrate.world.network.enclosure.event_loop import READ, EventLoop

#: Asks where to send; answers later with an address, or None for nowhere.
Destination = Callable[[Callable[["str | None"], None]], None]
_MOST_FLOWS = 64
_MOST_WAITING = 32


class DatagramRelay:
    """Owns the flows; the socket inside belongs to the caller."""

    def __init__(
        self, loop: EventLoop, inside: socket.socket, destination: Destination, port: int
    ) -> None:
        self._loop = loop
        self._inside = inside
        self._destination = destination
        self._port = port
        #: Sender -> the socket outside; None while its destination is looked up.
        self._flows: dict[tuple[str, int], socket.socket | None] = {}
        self._waiting: dict[tuple[str, int], list[bytes]] = {}
        loop.watch(inside.fileno(), READ, lambda _: self._outwards())

    def close(self) -> None:
        for flow in self._flows.values():
            if flow is not None:
                self._loop.forget(flow.fileno())
                flow.close()
        self._flows.clear()

    def _outwards(self) -> None:
        try:
            message, sender = self._inside.recvfrom(65536)
        except OSError:
            return
        sender = sender[:2]
        flow = self._flows.get(sender)
        if flow is not None:
            with suppress(OSError):  # it may be lost, as on a wire
                flow.send(message)
            return
        waiting = self._waiting.setdefault(sender, [])
        if len(waiting) < _MOST_WAITING:
            waiting.append(message)
        if sender not in self._flows:
            if len(self._flows) >= _MOST_FLOWS:
                self._end(next(iter(self._flows)))
            self._flows[sender] = None
            self._destination(lambda address: self._start(sender, address))

    def _start(self, sender: tuple[str, int], address: str | None) -> None:
        if sender not in self._flows:
            return
        if address is None:
            self._end(sender)
            return
        flow = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        )
        flow.setblocking(False)
        try:
            flow.connect((address, self._port))
            for message in self._waiting.pop(sender, []):
                flow.send(message)
        except OSError:
            flow.close()
            self._end(sender)
            return
        self._flows[sender] = flow
        self._loop.watch(flow.fileno(), READ, lambda _: self._inwards(flow, sender))

    def _inwards(self, flow: socket.socket, sender: tuple[str, int]) -> None:
        try:
            message = flow.recv(65536)
            self._inside.sendto(message, sender)
        except BlockingIOError:
            pass
        except OSError:
            self._end(sender)

    def _end(self, sender: tuple[str, int]) -> None:
        self._waiting.pop(sender, None)
        flow = self._flows.pop(sender, None)
        if flow is not None:
            self._loop.forget(flow.fileno())
            flow.close()
