"""Network namespaces: made, their loopback set up, and sockets taken out of them.

A socket always belongs to the network namespace it was made in, whichever process holds it. So a
supervisor outside can listen inside: it receives sockets that were made there.

Run as a script (``python -I -S netns.py DESCRIPTOR``), this makes such sockets for a supervisor
that has threads and may not enter a user namespace itself: see `SocketMaker`. It imports nothing of
ours, so that it starts in ten milliseconds.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_RTM_NEWADDR, _RTM_NEWROUTE = 20, 24
_NLM_REQUEST_ACK_CREATE = 0x1 | 0x4 | 0x400
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_OIF = 4
_RTN_LOCAL, _RT_TABLE_LOCAL, _RT_SCOPE_HOST, _RTPROT_BOOT = 2, 255, 254, 3
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

#: The requests of `SocketMaker`, one byte each.
KINDS = {
    b"u": (socket.AF_INET, socket.SOCK_DGRAM),
    b"U": (socket.AF_INET6, socket.SOCK_DGRAM),
    b"t": (socket.AF_INET, socket.SOCK_STREAM),
    b"T": (socket.AF_INET6, socket.SOCK_STREAM),
}
_DNS_PORT = 53


def unshare(flags: int) -> None:
    """Like unshare(2); `os.unshare` exists since Python 3.12."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def loopback_up() -> None:
    """In a new network namespace ``lo`` exists, but is down."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def add_address(address: str, prefix: int) -> None:
    """Give ``lo`` another address.

    If all addresses are in 127/8, resolvers conclude that there is no network and do not even ask.
    """
    raw = socket.inet_aton(address)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, _RT_SCOPE_HOST, _loopback_index())
    body += _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw)
    _netlink(_RTM_NEWADDR, body)


def every_address_is_ours() -> None:
    """Route every address to ``lo``: nothing can leave, and every connection can be received."""
    for family in (socket.AF_INET, socket.AF_INET6):
        body = struct.pack(
            "=BBBBBBBBI", family, 0, 0, 0, _RT_TABLE_LOCAL, _RTPROT_BOOT, _RT_SCOPE_HOST,
            _RTN_LOCAL, 0,
        )  # fmt: skip
        body += _attribute(_RTA_OIF, struct.pack("=I", _loopback_index()))
        try:
            _netlink(_RTM_NEWROUTE, body)
        except OSError:
            if family == socket.AF_INET:  # a kernel without IPv6 is not an error
                raise


def _loopback_index() -> int:
    return socket.if_nametoindex("lo")


def _attribute(kind: int, payload: bytes) -> bytes:
    size = 4 + len(payload)
    return struct.pack("=HH", size, kind) + payload + b"\0" * (-size % 4)


def _netlink(message: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        header = struct.pack("=IHHII", 16 + len(body), message, _NLM_REQUEST_ACK_CREATE, 1, 0)
        route.send(header + body)
        reply = route.recv(4096)
    number = -struct.unpack_from("=i", reply, 16)[0]
    if number and number != errno.EEXIST:
        raise OSError(number, f"netlink: {os.strerror(number)}")


def resolver_sockets() -> list[socket.socket]:
    """Sockets bound to port 53 of every address: two for datagrams, two that listen.

    The IPv6 sockets are missing where the kernel has no IPv6.
    """
    made = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            try:
                made.append(_at_port_53(family, kind))
            except OSError:
                if family == socket.AF_INET:
                    raise
    return made


def _at_port_53(family: int, kind: int) -> socket.socket:
    made = socket.socket(family, kind | socket.SOCK_CLOEXEC)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == socket.SOCK_DGRAM:
        # Answers must come from the address that was asked.
        if family == socket.AF_INET:
            made.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_PKTINFO", 8), 1)
        else:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    made.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", _DNS_PORT))
    if kind == socket.SOCK_STREAM:
        made.listen(64)
    return made


def _make_on_demand(channel: socket.socket) -> None:
    """For each byte received, send one socket bound to a free port, until the channel closes."""
    try:
        unshare(CLONE_NEWNET)
    except OSError:
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
    loopback_up()
    every_address_is_ours()
    stub = resolver_sockets()
    socket.send_fds(channel, [b"R"], [each.fileno() for each in stub])
    for each in stub:
        each.close()
    while wanted := channel.recv(1):
        family, kind = KINDS[wanted]
        try:
            with socket.socket(family, kind) as made:
                made.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))
                socket.send_fds(channel, [b"S"], [made.fileno()])
        except OSError:
            channel.send(b"E")


if __name__ == "__main__":
    _make_on_demand(socket.socket(fileno=int(sys.argv[1])))
