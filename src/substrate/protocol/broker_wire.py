r"""The protocol between `substrate` inside a world and the broker outside: one socket per call.

    inside                                     outside
      length, fields, each ended by \0    ─▶
                                    ◀─  H        heard: it is being looked at
                                    ◀─  o e      bytes for stdout and stderr
                                    ◀─  i        ids of a command that begins in the world
                                    ◀─  X status done

The process inside is not trusted: nothing here runs code, every length is bounded, and descriptors
that are sent along are not accepted. This is on the thin client's path: see
`client/offer_to_daemon.py`.
"""

from __future__ import annotations

import _socket

#: The variable with the path of the broker's socket; set for commands in a world.
VARIABLE = "SUBSTRATE_BROKER"
NAME = b"broker"
MOST_BYTES = 256 * 1024
#: The maximum for one frame of output.
MOST_FRAME_BYTES = 64 * 1024
#: How long each side waits for something the other should send at once.
PATIENCE_S = 10.0

ASK, BEGIN, END = b"ask", b"begin", b"end"
HEARD, OUT, ERR, IDS, EXITED = b"H", b"o", b"e", b"i", b"X"
_HEAD_BYTES = 5


class Question:
    """One call from inside. Everything in it is only what the process inside claims."""

    __slots__ = ("columns", "cwd", "flags", "kind", "words")

    def __init__(
        self, kind: bytes, words: list[bytes], cwd: bytes, flags: bytes = b"", columns: int = 80
    ) -> None:
        """`flags`: o and e, stdout and stderr are terminals; n, no colour."""
        self.kind = kind
        self.words = words
        self.cwd = cwd
        self.flags = flags
        self.columns = columns

    def encode(self) -> bytes:
        fields = [self.kind, self.cwd, self.flags, b"%d" % self.columns, *self.words]
        return b"".join([field + b"\0" for field in fields])


def decode(body: bytes) -> Question:
    """The question, or `ValueError`."""
    fields = body.split(b"\0")
    if fields.pop() != b"" or len(fields) < 4:
        raise ValueError("not a question")
    kind, cwd, flags, columns = fields[:4]
    if kind not in (ASK, BEGIN, END) or not cwd.startswith(b"/"):
        raise ValueError("not a question")
    return Question(kind, fields[4:], cwd, flags, max(20, min(int(columns), 1000)))


def send_question(connection: _socket.socket, question: Question) -> None:
    body = question.encode()
    if len(body) > MOST_BYTES:
        raise ValueError("the call is too long")
    connection.sendall(len(body).to_bytes(4, "big") + body)


def receive_question(connection: _socket.socket) -> Question:
    """Raises `ValueError` if it is no question, `EOFError` or `OSError` if nothing comes."""
    length = int.from_bytes(_receive(connection, 4), "big")
    if length > MOST_BYTES:
        raise ValueError("the call is too long")
    return decode(_receive(connection, length))


def send_frame(connection: _socket.socket, kind: bytes, payload: bytes = b"") -> None:
    for at in range(0, max(1, len(payload)), MOST_FRAME_BYTES):
        part = payload[at : at + MOST_FRAME_BYTES]
        connection.sendall(kind + len(part).to_bytes(4, "big") + part)


def receive_frame(connection: _socket.socket) -> tuple[bytes, bytes]:
    head = _receive(connection, _HEAD_BYTES)
    length = int.from_bytes(head[1:], "big")
    if length > MOST_FRAME_BYTES:
        raise ValueError("not a frame")
    return head[:1], _receive(connection, length)


def _receive(connection: _socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, MOST_FRAME_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
