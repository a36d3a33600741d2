"""The command's own DNS queries, passed on byte for byte, and read on the way.

A socket that is about to talk to port 53 is replaced by one from a network namespace in which
every address is local, so that the program still sees the address it asked. There we are the
resolver: each query goes on to the address it was for, from the real network, and each answer
goes back unchanged. So this also works for programs that speak DNS by themselves, without libc.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from substrate.system.linux import SocketMaker
from substrate.world.network.enclosure import dns
from substrate.world.network.enclosure.dial import dial
from substrate.world.network.enclosure.event_loop import READ, EventLoop
from substrate.world.network.enclosure.resolver_socket import Query, receive_query, send_reply
from substrate.world.network.enclosure.stream_relay import StreamRelay, abort_on_close

DNS_PORT = 53
#: How long to wait for an answer; every resolver has repeated its query by then.
_PATIENCE_S = 15.0
#: (process, name, addresses)
Learn = Callable[[int, str, tuple[str, ...]], None]

#: Options that a program may have set before its socket was replaced: (level, name, bytes).
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16),
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16),
    (socket.IPPROTO_IP, 11, 4),  # IP_RECVERR
    (socket.IPPROTO_IPV6, 25, 4),  # IPV6_RECVERR
    (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 4),
)


class _Pending(NamedTuple):
    stub: socket.socket
    query: Query
    pid: int


class ResolverRelay:
    """The relay of one command. All of it runs in the loop's thread."""

    def __init__(self, loop: EventLoop, learn: Learn) -> None:
        """Raises `MissingDependencyError` where no network namespace can be made."""
        self._loop = loop
        self._learn = learn
        self._maker = SocketMaker()
        #: The process that got a socket of ours, by the port it is bound to.
        self._owners: dict[int, int] = {}
        self._pending: dict[socket.socket, _Pending] = {}
        self._streams: set[StreamRelay] = set()
        for stub in self._maker.resolvers:
            stub.setblocking(False)
            if stub.type == socket.SOCK_DGRAM:
                loop.watch(stub.fileno(), READ, lambda _, stub=stub: self._query(stub))  # type: ignore[misc]
            else:
                loop.watch(stub.fileno(), READ, lambda _, stub=stub: self._accept(stub))  # type: ignore[misc]

    def replacement(self, pid: int, original: socket.socket) -> socket.socket | None:
        """A socket that replaces `original`, a socket of `pid`."""
        made = self._maker.make(original.family, original.type)
        if made is None:
            return None
        self._owners[made.getsockname()[1]] = pid
        for level, name, size in _OPTIONS:
            with suppress(OSError):  # not an option of this family
                made.setsockopt(level, name, original.getsockopt(level, name, size))
        return made

    def close(self) -> None:
        for stub in self._maker.resolvers:
            self._loop.forget(stub.fileno())
        for upstream in list(self._pending):
            self._drop(upstream)
        for stream in list(self._streams):
            stream.close()
        self._maker.close()

    def _query(self, stub: socket.socket) -> None:
        query = receive_query(stub)
        if query is None:
            return
        upstream = socket.socket(stub.family, socket.SOCK_DGRAM)
        upstream.setblocking(False)
        pending = _Pending(stub, query, self._owners.get(query.client[1], 0))
        try:
            upstream.connect((query.server, DNS_PORT))
            upstream.send(query.message)
        except OSError:
            upstream.close()
            self._refuse(pending)
            return
        self._pending[upstream] = pending
        self._loop.watch(upstream.fileno(), READ, lambda _: self._answer(upstream))
        self._loop.later(_PATIENCE_S, lambda: self._drop(upstream))

    def _answer(self, upstream: socket.socket) -> None:
        pending = self._pending.get(upstream)
        if pending is None:
            return
        try:
            message = upstream.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self._refuse(pending)
            self._drop(upstream)
            return
        self._read_answer(pending.pid, message)
        send_reply(pending.stub, pending.query, message)
        if message[:2] == pending.query.message[:2]:
            self._drop(upstream)  # that was the answer; another question gets another socket

    def _refuse(self, pending: _Pending) -> None:
        """The server cannot be reached: answer at once, so that the program need not time out."""
        question = dns.parse_question(pending.query.message)
        if question is not None:
            answer = dns.reply(pending.query.message, question, dns.SERVFAIL)
            send_reply(pending.stub, pending.query, answer)

    def _drop(self, upstream: socket.socket) -> None:
        if self._pending.pop(upstream, None) is not None:
            self._loop.forget(upstream.fileno())
            upstream.close()

    def _read_answer(self, pid: int, message: bytes) -> None:
        question = dns.parse_question(message)
        addresses = dns.addresses_in(message)
        if question is not None and addresses:
            self._learn(pid, question.name, addresses)

    def _accept(self, stub: socket.socket) -> None:
        try:
            near, client = stub.accept()
        except OSError:
            return
        pid = self._owners.get(client[1], 0)
        server, port = near.getsockname()[:2]
        dial(self._loop, server, port, lambda far: self._dialled(pid, near, far))

    def _dialled(self, pid: int, near: socket.socket, far: socket.socket | None) -> None:
        if far is None:
            abort_on_close(near)
            near.close()
            return
        tap = _MessageTap(lambda message: self._read_answer(pid, message))
        self._streams.add(
            StreamRelay(self._loop, near, far, tap=tap.feed, closed=self._streams.discard)
        )


class _MessageTap:
    """Finds the messages in a DNS stream: each comes after its length."""

    def __init__(self, message: Callable[[bytes], None]) -> None:
        self._message = message
        self._rest = b""

    def feed(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= 2:
            size = struct.unpack_from(">H", self._rest)[0]
            if len(self._rest) < 2 + size:
                return
            self._message(self._rest[2 : 2 + size])
            self._rest = self._rest[2 + size :]
