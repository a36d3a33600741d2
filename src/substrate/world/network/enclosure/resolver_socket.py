"""Datagrams at port 53 of every address: the answer must come from the address that was asked."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_IP_PKTINFO = 8


class Query(NamedTuple):
    """One datagram, its sender and the address it was sent to."""

    message: bytes
    client: tuple[str, int]
    server: str


def receive_query(stub: socket.socket) -> Query | None:
    """From a socket of `netns.resolver_sockets`; None if there is nothing to answer."""
    try:
        message, controls, _, client = stub.recvmsg(65536, 256)
    except OSError:
        return None
    for level, kind, data in controls:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(data) >= 12:
            return Query(message, client[:2], socket.inet_ntop(socket.AF_INET, data[8:12]))
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) and len(data) >= 16:
            return Query(message, client[:2], socket.inet_ntop(socket.AF_INET6, data[:16]))
    return None


def send_reply(stub: socket.socket, query: Query, message: bytes) -> None:
    if stub.family == socket.AF_INET:
        info = struct.pack("=i4s4x", 0, socket.inet_aton(query.server))
        control = (socket.IPPROTO_IP, _IP_PKTINFO, info)
    else:
        info = socket.inet_pton(socket.AF_INET6, query.server) + struct.pack("=i", 0)
        control = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info)
    try:
        stub.sendmsg([message], [control], 0, query.client)
    except OSError:
        pass  # the program that asked is gone
