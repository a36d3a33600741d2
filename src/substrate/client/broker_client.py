"""Inside a world: history is outside, and a broker there answers for the command around us.

`ask` hands a whole call to the broker; `begin` and `end` report a command that runs in this world.
"""

from __future__ import annotations

import _socket
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.protocol import broker_wire
from substrate.system import Address, Environment

_SHOWN_BYTES = 32 * 1024


class Nested(NamedTuple):
    """A command that the broker has recorded."""

    span_id: str
    session_id: str


def is_there(environment: Environment) -> bool:
    return environment.get(broker_wire.VARIABLE) is not None


def ask(environment: Environment, words: Sequence[str]) -> int:
    """Have a call answered outside, with its output on our streams; returns its exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    with _call(environment, broker_wire.ASK, [os.fsencode(word) for word in words]) as connection:
        while True:
            kind, payload = _hear(connection)
            if kind == broker_wire.EXITED:
                return int(payload)
            if kind in (broker_wire.OUT, broker_wire.ERR):
                _write(1 if kind == broker_wire.OUT else 2, payload)


def begin(environment: Environment, *words: str | bytes) -> Nested:
    """A command starts in this world. Words: the tier, parent span and kind, then its own."""
    texts = [os.fsencode(word)[:_SHOWN_BYTES] for word in words]
    while sum(map(len, texts)) > broker_wire.MOST_BYTES // 2:  # its words are for the record only
        texts.pop()
    with _call(environment, broker_wire.BEGIN, texts) as connection:
        return Nested(*_answer(connection).decode().split(" "))


def end(environment: Environment, nested: Nested, exit_code: int, signum: int, ms: int) -> None:
    """The command has ended. The caller does not need the answer: if none comes, ignore that."""
    words = [nested.span_id.encode(), b"%d" % exit_code, b"%d" % signum, b"%d" % ms]
    try:
        with _call(environment, broker_wire.END, words) as connection:
            _answer(connection)
    except RefusedError:
        pass


class _call:  # noqa: N801  used as a function
    """An open connection on which the question has been sent."""

    def __init__(self, environment: Environment, kind: bytes, words: list[bytes]) -> None:
        flags = b"o" * os.isatty(1) + b"e" * os.isatty(2)
        flags += b"n" * (environment.no_color or environment.get("TERM") == "dumb")
        here = os.fsencode(os.getcwd())
        self._question = broker_wire.Question(kind, words, here, flags, _columns())
        self._path = os.fsencode(environment.get(broker_wire.VARIABLE) or "")

    def __enter__(self) -> _socket.socket:
        self._connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            self._wait_for_room()
            with Address(self._path) as address:
                self._connection.connect(address)
            self._connection.settimeout(broker_wire.PATIENCE_S)
            broker_wire.send_question(self._connection, self._question)
            kind, _ = broker_wire.receive_frame(self._connection)
            if kind != broker_wire.HEARD:
                raise ValueError(kind)
            self._connection.settimeout(None)
        except (OSError, EOFError, ValueError) as error:
            self._connection.close()
            raise _unreachable(error) from error
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _wait_for_room(self) -> None:
        """Wait while the queue is full; with Python's own timeout, connect would fail at once."""
        import struct

        patience = struct.pack("@ll", int(broker_wire.PATIENCE_S), 0)
        self._connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, patience)


def _answer(connection: _socket.socket) -> bytes:
    """The ids of a nested command; an error that the broker reports is raised here."""
    said = b""
    while True:
        kind, payload = _hear(connection)
        if kind == broker_wire.ERR:
            said += payload
        elif kind == broker_wire.IDS:
            return payload
        elif kind == broker_wire.EXITED:
            if int(payload):
                message, _, hint = said.decode("utf-8", "replace").partition("\n")
                raise RefusedError(message, hint=hint)
            return b""


def _hear(connection: _socket.socket) -> tuple[bytes, bytes]:
    try:
        return broker_wire.receive_frame(connection)
    except (OSError, EOFError, ValueError) as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> RefusedError:
    if isinstance(error, TimeoutError | BlockingIOError):
        why = "no answer from outside the world"
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
        except BlockingIOError:  # another process made it non-blocking, and it is shared
            select.select([], [fd], [])
