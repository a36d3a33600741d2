"""Short messages and descriptors between two related processes (POSIX).

`_socket` is used because importing `socket` costs ten times as much, for every command.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
from typing import cast

_LENGTH_BYTES = 4
_MOST_DESCRIPTORS = 16

Message = tuple[object, ...]


class ClosedError(Exception):
    """The other end is gone."""


class Channel:
    """One end. A message is a tuple of plain values; the first one names its type."""

    def __init__(self, fd: int) -> None:
        import _socket

        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *message: object, fds: tuple[int, ...] = ()) -> None:
        """Raises `ClosedError` if the other end is closed."""
        import _socket

        body = marshal.dumps(message)  # type: ignore[arg-type]
        data = len(body).to_bytes(_LENGTH_BYTES, "big") + body
        packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if fds else []
        try:
            sent = self._socket.sendmsg([data], ancillary)
            while sent < len(data):
                sent += self._socket.send(data[sent:])
        except OSError as error:
            raise ClosedError from error

    def receive(self) -> tuple[Message, tuple[int, ...]]:
        """The next message and its descriptors; `ClosedError` at the end."""
        head, fds = self._receive_with_fds(_LENGTH_BYTES)
        if len(head) < _LENGTH_BYTES:
            raise ClosedError
        length = int.from_bytes(head, "big")
        body = b""
        while len(body) < length:
            chunk = self._receive_some(length - len(body))
            if not chunk:
                raise ClosedError
            body += chunk
        return cast(Message, marshal.loads(body)), fds

    def rest(self) -> bytes:
        """The raw bytes that the other end writes, until it closes."""
        out = b""
        try:
            while chunk := self._receive_some(4096):
                out += chunk
        except ClosedError:
            pass
        return out

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether `receive` would not wait."""
        return is_readable(self.fileno(), timeout_s)

    def announce_by(self, signum: int) -> None:
        """Have the kernel send us `signum` whenever something arrives (Linux).

        So a process that waits for signals also learns of messages.
        """
        announce_by(self.fileno(), signum)

    def close(self) -> None:
        self._socket.close()

    def _receive_with_fds(self, length: int) -> tuple[bytes, tuple[int, ...]]:
        import _socket

        space = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
        flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(length, space, flags)
        except ConnectionError as error:
            raise ClosedError from error
        fds = [
            int.from_bytes(packed[at : at + 4], sys.byteorder)
            for level, kind, packed in ancillary
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
            for at in range(0, len(packed), 4)
        ]
        while data and len(data) < length:
            more = self._receive_some(length - len(data))
            if not more:
                break
            data += more
        return data, tuple(fds)

    def _receive_some(self, length: int) -> bytes:
        try:
            return self._socket.recv(length)
        except ConnectionError as error:
            raise ClosedError from error


def is_readable(fd: int, timeout_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def announce_by(fd: int, signum: int) -> None:
    """Have the kernel send us `signum` whenever `fd` becomes readable (Linux)."""
    import fcntl

    f_setsig = 10
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, f_setsig, signum)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def announce_no_more(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_ASYNC)


def pair() -> tuple[Channel, Channel]:
    """Two ends, closed on exec."""
    import _socket

    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    return Channel(ours.detach()), Channel(theirs.detach())
