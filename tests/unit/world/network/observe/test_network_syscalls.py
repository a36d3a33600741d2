"""Notified calls of every kind, from 64-bit and from 32-bit programs."""

from __future__ import annotations

import socket
import struct

import pytest

from substrate.system.linux.seccomp_notify import CALLS, I386, X86_64, Notification
from substrate.world.network.observe.network_syscalls import (
    Memory,
    Target,
    decode,
    may_pass_descriptors,
    parse_sockaddr,
)

V4 = struct.pack("=H", socket.AF_INET) + struct.pack(">H", 443) + bytes([192, 0, 2, 1]) + b"\0" * 8
V6 = (
    struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", 53, 0)
    + socket.inet_pton(socket.AF_INET6, "2001:db8::5") + b"\0" * 4
)  # fmt: skip
FOUR, SIX = Target(socket.AF_INET, "192.0.2.1", 443), Target(socket.AF_INET6, "2001:db8::5", 53)


def memory(**at: bytes) -> Memory:
    """Memory with some bytes at some addresses, given as ``x1000=…``."""
    places = {int(place[1:], 16): content for place, content in at.items()}

    def read(address: int, size: int) -> bytes:
        for start, content in places.items():
            if start <= address < start + len(content):
                return content[address - start : address - start + size]
        return b""

    return read


def note(arch: int, name: str, *args: int) -> Notification:
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    return Notification(1, 2, arch, CALLS[arch][name], padded)


def test_connect_and_sendto() -> None:
    held = memory(x1000=V4, x2000=V6)
    assert decode(note(X86_64, "connect", 5, 0x1000, 16), held).targets == (FOUR,)
    call = decode(note(X86_64, "sendto", 5, 0, 0, 0, 0x2000, 28), held)
    assert (call.name, call.descriptor, call.targets) == ("sendto", 5, (SIX,))


@pytest.mark.parametrize(("arch", "header", "each"), [(X86_64, "=QI", 64), (I386, "=II", 32)])
def test_every_message_of_sendmmsg_is_seen(arch: int, header: str, each: int) -> None:
    messages = b"".join(
        struct.pack(header, address, size).ljust(each, b"\0")
        for address, size in ((0x1000, 16), (0, 0), (0x2000, 28))
    )
    held = memory(x1000=V4, x2000=V6, x3000=messages)
    assert decode(note(arch, "sendmmsg", 5, 0x3000, 3), held).targets == (FOUR, SIX)
    assert decode(note(arch, "sendmsg", 5, 0x3000), held).targets == (FOUR,)


def test_socketcall_is_another_name_for_them_all() -> None:
    arguments = struct.pack("=6I", 9, 0x1000, 16, 0, 0, 0)
    held = memory(x1000=V4, x4000=arguments)
    call = decode(note(I386, "socketcall", 3, 0x4000), held)
    assert (call.name, call.descriptor, call.targets) == ("connect", 9, (FOUR,))


@pytest.mark.parametrize("arch", CALLS)
def test_descriptors_travel_with_messages_only(arch: int) -> None:
    found = {name for name in CALLS[arch] if may_pass_descriptors(note(arch, name, 5))}
    assert found == {"sendmsg", "sendmmsg"}
    if arch == I386:
        told = [
            may_pass_descriptors(note(arch, "socketcall", number)) for number in (3, 11, 16, 20)
        ]
        assert told == [False, False, True, True]


def test_memory_that_cannot_be_read_is_reported() -> None:
    assert not decode(note(X86_64, "connect", 5, 0x1000, 16), memory()).readable
    assert not decode(note(X86_64, "sendmsg", 5, 0x1000), memory()).readable
    assert decode(note(X86_64, "sendto", 5, 0, 0, 0, 0, 0), memory()).readable


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        (V4[:7], None),
        (V6[:23], None),
        (b"\2", None),
        (b"", None),
        (struct.pack("=H", 0), Target(0, "", 0)),
        (struct.pack("=H", 1) + b"/run/x\0junk", Target(1, "/run/x", 0)),
        (struct.pack("=H", 999) + b"\0" * 30, None),
        (V6[:8] + b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 1]), Target(10, "10.0.0.1", 53)),
    ],
)
def test_socket_addresses(raw: bytes, target: Target | None) -> None:
    assert parse_sockaddr(raw) == target
