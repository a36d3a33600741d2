"""Inside a world: history lies outside, and a broker there answers for the command around us.

`ask` hands a whole call to it; `begin` and `end` tell it of a command that runs in this world.
"""

from __future__ import annotations

import _socket
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.protocol import inside
from substrate.system.agent_place import Address
from substrate.system.environment import Environment

_SHOWN_BYTES = 32 * 1024


class Nested(NamedTuple):
    """A command that the broker knows of."""

    span_id: str
    session_id: str


def is_there(environment: Environment) -> bool:
    return environment.get(inside.VARIABLE) is not None


def ask(environment: Environment, words: Sequence[str]) -> int:
    """Have a call answered outside, its output on our streams; its exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    with _call(environment, inside.ASK, [os.fsencode(word) for word in words]) as connection:
        while True:
            kind, payload = _hear(connection)
            if kind == inside.EXITED:
                return int(payload)
            if kind in (inside.OUT, inside.ERR):
                _write(1 if kind == inside.OUT else 2, payload)


def begin(environment: Environment, *words: str | bytes) -> Nested:
    """A command starts in this world: how it is wanted, then its words."""
    texts = [os.fsencode(word)[:_SHOWN_BYTES] for word in words]
    while sum(map(len, texts)) > inside.MOST_BYTES // 2:  # its words are for the record only
        texts.pop()
    with _call(environment, inside.BEGIN, texts) as connection:
        return Nested(*_answer(connection).decode().split(" "))


def end(environment: Environment, nested: Nested, exit_code: int, signum: int, ms: int) -> None:
    """It is over. Nobody waits for the answer, nor fails for want of it."""
    words = [nested.span_id.encode(), b"%d" % exit_code, b"%d" % signum, b"%d" % ms]
    try:
        with _call(environment, inside.END, words) as connection:
            _answer(connection)
    except RefusedError:
        pass


class _call:  # noqa: N801  used as a function
    """An open connection with the question on its way."""

    def __init__(self, environment: Environment, kind: bytes, words: list[bytes]) -> None:
        flags = b"o" * os.isatty(1) + b"e" * os.isatty(2)
        flags += b"n" * (environment.no_color or environment.get("TERM") == "dumb")
        here = os.fsencode(os.getcwd())
        self._question = inside.Question(kind, words, here, flags, _columns())
        self._path = os.fsencode(environment.get(inside.VARIABLE) or "")

    def __enter__(self) -> _socket.socket:
        self._connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            self._wait_for_room()
            with Address(self._path) as address:
                self._connection.connect(address)
            self._connection.settimeout(inside.PATIENCE_S)
            inside.send_question(self._connection, self._question)
            kind, _ = inside.receive_frame(self._connection)
            if kind != inside.HEARD:
                raise ValueError(kind)
            self._connection.settimeout(None)
        except (OSError, EOFError, ValueError) as error:
            self._connection.close()
            raise _unreachable(error) from error
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _wait_for_room(self) -> None:
        """Where many call at once; with Python's own timeout the kernel would not wait at all."""
        import struct

        patience = struct.pack("@ll", int(inside.PATIENCE_S), 0)
        self._connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, patience)


def _answer(connection: _socket.socket) -> bytes:
    """The ids of a nested command; an error of the other side becomes ours."""
    said = b""
    while True:
        kind, payload = _hear(connection)
        if kind == inside.ERR:
            said += payload
        elif kind == inside.IDS:
            return payload
        elif kind == inside.EXITED:
            if int(payload):
                message, _, hint = said.decode("utf-8", "replace").partition("\n")
                raise RefusedError(message, hint=hint)
            return b""


def _hear(connection: _socket.socket) -> tuple[bytes, bytes]:
    try:
        return inside.receive_frame(connection)
    except (OSError, EOFError, ValueError) as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> RefusedError:
    if isinstance(error, TimeoutError | BlockingIOError):
        why = "nobody answers outside"
    elif isinstance(error, ValueError):
        why = "the call was not understood"
    else:
        why = "the command around this one is over"
    return RefusedError(
        f"history cannot be reached from inside this world: {why}",
        hint="ask again outside, in the workspace itself",
    )


def _columns() -> int:
    for fd in (1, 2):
        try:
            return os.get_terminal_size(fd).columns or 80
        except OSError:
            continue
    return 80


def _write(fd: int, data: bytes) -> None:
    import select

    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # somebody made it so; it is ours only to use
            select.select([], [fd], [])
