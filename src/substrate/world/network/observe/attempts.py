"""Connections that a command asked for: which of them were established.

A notified call goes on without us, and its result is not reported. So a copy of the socket is kept
until its state changes, and no longer: the kernel says by TCP_INFO whether the other side answered,
without consuming an error that the program should get.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import NamedTuple

from substrate.world.network.enclosure import READ, EventLoop
from substrate.world.network.observe.network_scopes import ScopeLog

_SYN_SENT, _CLOSE = 2, 7
_INFO_BYTES = 144
#: In struct tcp_info: bytes that the other side has acknowledged, the first of them for the SYN.
_ACKED_AT, _SEGMENTS_OUT_AT = 120, 136
#: A command with thousands of open connections must not use up our descriptors.
_MOST_FOLLOWED = 200


class _Attempt(NamedTuple):
    own: socket.socket
    scope: str


class Attempts:
    """Follows each stream from its connect until the result is known."""

    def __init__(self, loop: EventLoop, log: ScopeLog) -> None:
        self._loop = loop
        self._log = log
        # Edge-triggered: a socket that is not connected yet is always "ready".
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, _Attempt] = {}
        self._by_inode: dict[int, int] = {}
        loop.watch(self._epoll.fileno(), READ, lambda _: self._changed())

    def follow(self, own: socket.socket, scope: str) -> None:
        """Call this before the call goes on; `own` still belongs to the caller."""
        inode = os.fstat(own.fileno()).st_ino
        if inode in self._by_inode:  # connected once more: the first attempt has failed by now
            self._judge(self._by_inode[inode], is_over=True)
        if len(self._by_descriptor) >= _MOST_FOLLOWED:
            self._judge(next(iter(self._by_descriptor)), is_over=True)
        copy = copy_of(own)
        self._by_descriptor[copy.fileno()] = _Attempt(copy, scope)
        self._by_inode[inode] = copy.fileno()
        self._epoll.register(copy.fileno(), select.EPOLLOUT | select.EPOLLET)

    def settle(self, *, is_over: bool = True) -> None:
        """The command has ended: what has not been answered by now has failed.

        Not over (a shell's next line begins): record what is decided; the rest continues.
        """
        for descriptor in list(self._by_descriptor):
            self._judge(descriptor, is_over=is_over)

    def close(self) -> None:
        self.settle()
        self._loop.forget(self._epoll.fileno())
        self._epoll.close()

    def _changed(self) -> None:
        for descriptor, _ in self._epoll.poll(0):
            self._judge(descriptor, is_over=False)

    def _judge(self, descriptor: int, *, is_over: bool) -> None:
        attempt = self._by_descriptor.get(descriptor)
        if attempt is None:
            return
        came_to_be = _came_to_be(attempt.own)
        if came_to_be is None and not is_over:
            return
        (self._log.used if came_to_be else self._log.failed)(attempt.scope)
        del self._by_descriptor[descriptor]
        self._by_inode.pop(os.fstat(descriptor).st_ino, None)
        self._epoll.unregister(descriptor)
        attempt.own.close()


def copy_of(own: socket.socket) -> socket.socket:
    """Another handle. Not `socket.dup`: that sets the blocking mode, which the program shares."""
    return socket.socket(fileno=os.dup(own.fileno()))


def _came_to_be(own: socket.socket) -> bool | None:
    """Whether it was established; None while that is unknown."""
    try:
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return True  # the kernel has no TCP state for it: counts as used, as a datagram does
    if len(info) < _INFO_BYTES:  # Linux before 4.1 has neither field
        return info[0] not in (_SYN_SENT, _CLOSE)
    if struct.unpack_from("=Q", info, _ACKED_AT)[0] or info[0] not in (_SYN_SENT, _CLOSE):
        return True
    if info[0] == _CLOSE and struct.unpack_from("=I", info, _SEGMENTS_OUT_AT)[0]:
        return False
    return None
