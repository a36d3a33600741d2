"""DNS messages, as far as we need them: the question, the addresses in an answer, a reply.

Messages come from the command or from the network: nothing in them is trusted, every length is
checked, and a message that cannot be read gives None.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

TYPE_A, TYPE_CNAME, TYPE_AAAA = 1, 5, 28
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
_HEADER = struct.Struct(">HHHHHH")
_FLAG_RESPONSE, _FLAG_RECURSION = 0x8000, 0x0080
_KEPT_FLAGS = 0x7900  # opcode and "recursion desired" come back as they were asked
#: A name is at most 255 bytes; a chain of pointers longer than this is an attack.
_MOST_JUMPS = 64


class Question(NamedTuple):
    """The question: its name is in lower case without the final dot."""

    id: int
    flags: int
    name: str
    type: int
    #: Where the question ends in the message.
    end: int


def parse_question(message: bytes) -> Question | None:
    """The first question of a query or an answer."""
    if len(message) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(message)
    if questions < 1:
        return None
    named = _read_name(message, _HEADER.size)
    if named is None or named[1] + 4 > len(message):
        return None
    kind = struct.unpack_from(">H", message, named[1])[0]
    return Question(number, flags, named[0].lower(), kind, named[1] + 4)


def addresses_in(message: bytes) -> tuple[str, ...]:
    """Every address in the answer section."""
    question = parse_question(message)
    if question is None or not question.flags & _FLAG_RESPONSE:
        return ()
    questions, answers = struct.unpack_from(">HH", message, 4)
    if questions != 1:
        return ()
    found: list[str] = []
    at = question.end
    for _ in range(answers):
        named = _read_name(message, at)
        if named is None or named[1] + 10 > len(message):
            break
        kind, _, _, size = struct.unpack_from(">HHIH", message, named[1])
        data = message[named[1] + 10 : named[1] + 10 + size]
        if len(data) < size:
            break
        if kind == TYPE_A and size == 4:
            found.append(socket.inet_ntop(socket.AF_INET, data))
        elif kind == TYPE_AAAA and size == 16:
            found.append(socket.inet_ntop(socket.AF_INET6, data))
        at = named[1] + 10 + size
    return tuple(found)


def reply(message: bytes, question: Question, code: int, addresses: tuple[str, ...] = ()) -> bytes:
    """An answer to the query `message`; no addresses and NOERROR is "nothing of that type"."""
    flags = _FLAG_RESPONSE | _FLAG_RECURSION | (question.flags & _KEPT_FLAGS) | code
    out = _HEADER.pack(question.id, flags, 1, len(addresses), 0, 0)
    out += message[_HEADER.size : question.end]
    for address in addresses:
        family, kind = (socket.AF_INET6, TYPE_AAAA) if ":" in address else (socket.AF_INET, TYPE_A)
        raw = socket.inet_pton(family, address)
        # The name as a pointer to the question; a short lifetime, because the answer may change.
        out += struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(raw)) + raw
    return out


def _read_name(message: bytes, at: int) -> tuple[str, int] | None:
    """The name that starts at `at`, and the offset after it."""
    labels: list[str] = []
    after = -1
    for _ in range(_MOST_JUMPS):
        if at >= len(message):
            return None
        size = message[at]
        if size == 0:
            return ".".join(labels), (after if after >= 0 else at + 1)
        if size >= 0xC0:
            if at + 1 >= len(message):
                return None
            after = after if after >= 0 else at + 2
            at = (size & 0x3F) << 8 | message[at + 1]
            continue
        label = message[at + 1 : at + 1 + size]
        if size > 63 or len(label) < size:
            return None
        labels.append(label.decode("latin-1"))
        at += 1 + size
    return None
