"""From a notified call to the destinations it names."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from substrate.system.linux import ARM, CALLS, I386, SOCKETCALLS, Notification

#: (address, size) -> bytes: the memory of the process that calls.
Memory = Callable[[int, int], bytes]

_NAMES = {(arch, number): name for arch, calls in CALLS.items() for name, number in calls.items()}
_SOCKADDR_BYTES = 128
#: No other calls pass descriptors, except io_uring, which is blocked: see `build_filter`.
_WITH_DESCRIPTORS = ("sendmsg", "sendmmsg")
#: ``sendmmsg`` takes 1024 messages; the kernel never looks at more.
_MOST_MESSAGES = 1024


class Target(NamedTuple):
    """Where a socket address points to."""

    family: int
    #: In text: an address, or a path.
    host: str
    port: int


class Call(NamedTuple):
    """One network call."""

    name: str
    descriptor: int
    targets: tuple[Target, ...]
    #: False where its memory could not be read.
    readable: bool = True


def may_pass_descriptors(note: Notification) -> bool:
    """Whether a process can pass open descriptors to another process with this call."""
    name = _NAMES.get((note.arch, note.number), "")
    if name == "socketcall":
        name = SOCKETCALLS.get(note.args[0] & 0xFFFFFFFF, "")
    return name in _WITH_DESCRIPTORS


def decode(note: Notification, memory: Memory) -> Call:
    """What the call wants; 32-bit programs and i386's ``socketcall`` included."""
    name = _NAMES.get((note.arch, note.number), "")
    args = note.args
    short = note.arch in (I386, ARM)
    if name == "socketcall":
        name = SOCKETCALLS.get(args[0], "")
        raw = memory(args[1], 24)
        raw += b"\0" * (24 - len(raw))
        args = struct.unpack("=6I", raw)
    descriptor = args[0] & 0x7FFFFFFF
    if name == "connect":
        return _call(name, descriptor, [(args[1], args[2])], memory)
    if name == "sendto":
        return _call(name, descriptor, [(args[4], args[5])], memory)
    if name == "sendmsg":
        return _call(name, descriptor, _message_names(args[1], 1, short, memory), memory)
    if name == "sendmmsg":
        count = min(args[2] & 0xFFFFFFFF, _MOST_MESSAGES)
        return _call(name, descriptor, _message_names(args[1], count, short, memory), memory)
    return Call(name, descriptor, ())


def _call(name: str, descriptor: int, places: list[tuple[int, int]] | None, memory: Memory) -> Call:
    if places is None:
        return Call(name, descriptor, (), readable=False)
    targets: dict[Target, None] = {}
    readable = True
    for address, size in places:
        length = min(size & 0xFFFFFFFF, _SOCKADDR_BYTES)
        if not address or length < 2:
            continue
        raw = memory(address, length)
        target = parse_sockaddr(raw)
        if target is not None:
            targets.setdefault(target)
        elif not raw:
            readable = False
    return Call(name, descriptor, tuple(targets), readable)


def _message_names(
    at: int, count: int, short: bool, memory: Memory
) -> list[tuple[int, int]] | None:
    """The places of the names in one ``msghdr``, or in several ``mmsghdr``."""
    each, header = (32, "=II") if short else (64, "=QI")
    raw = memory(at, each * (count - 1) + struct.calcsize(header))
    if not raw:
        return None
    found: list[tuple[int, int]] = []
    for offset in range(0, len(raw), each):
        if offset + struct.calcsize(header) > len(raw):
            break
        address, size = struct.unpack_from(header, raw, offset)
        found.append((address, size))
    return found


def parse_sockaddr(raw: bytes) -> Target | None:
    """An address of the families we know; None for others and for addresses that are too short."""
    if len(raw) < 2:
        return None
    family = struct.unpack_from("=H", raw)[0]
    if family == socket.AF_INET and len(raw) >= 8:
        port = struct.unpack_from(">H", raw, 2)[0]
        return Target(family, socket.inet_ntop(family, raw[4:8]), port)
    if family == socket.AF_INET6 and len(raw) >= 24:
        port = struct.unpack_from(">H", raw, 2)[0]
        text = socket.inet_ntop(family, raw[8:24])
        # A mapped address is IPv4 on the wire.
        return Target(family, text.removeprefix("::ffff:") if "." in text else text, port)
    if family == socket.AF_UNIX:
        if raw[2:3] == b"\0":  # abstract: every byte counts, and other tools write it as ``@``
            return Target(family, "@" + raw[3:].decode("utf-8", "surrogateescape"), 0)
        path = raw[2:].split(b"\0", 1)[0]
        return Target(family, path.decode("utf-8", "surrogateescape"), 0)
    if family == socket.AF_UNSPEC:
        return Target(family, "", 0)
    return None
