"""DNS messages from anywhere: read exactly, or not at all."""

from __future__ import annotations

import random
import struct

import pytest

from substrate.world.network.enclosure import dns


def query(name: str, kind: int = dns.TYPE_A) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return (
        struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)
    )


def test_a_question_is_read_in_lower_case() -> None:
    question = dns.parse_question(query("WWW.Example.COM"))
    assert question is not None
    assert (question.id, question.name, question.type) == (7, "www.example.com", dns.TYPE_A)


def test_a_reply_says_what_was_asked_and_holds_the_addresses() -> None:
    message = query("a.test")
    question = dns.parse_question(message)
    assert question is not None
    answer = dns.reply(message, question, dns.NOERROR, ("192.0.2.1", "2001:db8::1"))
    assert answer[:2] == message[:2]
    assert dns.addresses_in(answer) == ("192.0.2.1", "2001:db8::1")
    assert dns.parse_question(answer) == question._replace(flags=0x8180)


def test_addresses_behind_an_alias_belong_to_the_question() -> None:
    message = query("alias.test")
    answer = struct.pack(">HHHHHH", 7, 0x8180, 1, 2, 0, 0) + message[12:]
    target = b"\x04real\x04test\0"
    answer += struct.pack(">HHHIH", 0xC00C, dns.TYPE_CNAME, 1, 5, len(target)) + target
    answer += target + struct.pack(">HHIH", dns.TYPE_A, 1, 5, 4) + bytes([192, 0, 2, 9])
    assert dns.addresses_in(answer) == ("192.0.2.9",)
    question = dns.parse_question(answer)
    assert question is not None
    assert question.name == "alias.test"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0" * 11,
        b"\0" * 12,
        struct.pack(">HHHHHH", 1, 0, 1, 0, 0, 0) + b"\xc0\x0c" + b"\0\1\0\1",  # points at itself
        struct.pack(">HHHHHH", 1, 0, 1, 0, 0, 0) + b"\x3fshort",
        struct.pack(">HHHHHH", 1, 0, 1, 0, 0, 0) + b"\x80" + b"a" * 200,
        query("a.test")[:-1],
    ],
)
def test_what_is_broken_is_no_question(message: bytes) -> None:
    assert dns.parse_question(message) is None
    assert dns.addresses_in(message) == ()


def test_noise_is_never_an_error() -> None:
    noise = random.Random(5)
    whole = query("some.name.test")
    question = dns.parse_question(whole)
    assert question is not None
    answer = dns.reply(whole, question, dns.NOERROR, ("192.0.2.1",) * 5)
    for _ in range(3000):
        broken = bytearray(answer[: noise.randrange(len(answer) + 1)])
        for _ in range(noise.randrange(4)):
            if broken:
                broken[noise.randrange(len(broken))] = noise.randrange(256)
        dns.parse_question(bytes(broken))
        dns.addresses_in(bytes(broken))
