r"""The command line's protocol with the daemon: one stream socket per call.

    client                                     daemon
      magic, length, with descriptors 0 1 2 and the current directory  ─▶
      fields, each ended by \0                                         ─▶
                                    ◀─  S pid        the command starts now: no way back
                                    ◀─  D reason     not here: run it yourself
      one byte per signal                                              ─▶
                                    ◀─  R document   what was recorded, if asked for
                                    ◀─  X status     done; -N: the command died of signal N

The fields are arguments, variables and paths, which cannot hold a NUL: nothing needs quoting,
and nothing is parsed that could run code. This is on the thin client's path: see
`client/offer_to_daemon.py`.
"""

from __future__ import annotations

import _socket
import sys

MAGIC = b"SBD1"
#: Arguments and environment: the kernel itself takes no more than a few MiB.
MOST_BYTES = 16 * 1024 * 1024
MOST_REPLY_BYTES = 64 * 1024 * 1024
#: How long each side waits for something the other should send at once.
PATIENCE_S = 10.0

STARTED, DECLINED, REPORT, EXITED = b"S", b"D", b"R", b"X"

#: Why the daemon declines. After either of these two, a new daemon takes its place.
STALE, NEWER_CLIENT = b"stale", b"newer-client"

_HEADER_BYTES = len(MAGIC) + 4
_DESCRIPTORS = 4


class Request:
    """One call: what a process started in the client's place would have got."""

    __slots__ = ("argv", "env", "flags", "install", "kind", "umask", "version")

    def __init__(
        self, kind: bytes, argv: list[bytes], env: list[bytes], *,
        version: bytes, install: bytes, umask: int = 0o022, flags: bytes = b"",
    ) -> None:  # fmt: skip
        """`kind`: run, status or stop. `env` has ``NAME=value``. `flags`: t, fd 0 is to be the
        controlling terminal; r, a report is wanted."""
        self.kind = kind
        self.argv = argv
        self.env = env
        self.version = version
        self.install = install
        self.umask = umask
        self.flags = flags

    def encode(self) -> bytes:
        fields = [
            self.kind, self.version, self.install, b"%o" % self.umask, self.flags,
            b"%d" % len(self.argv), *self.argv, *self.env,
        ]  # fmt: skip
        return b"".join([field + b"\0" for field in fields])


def decode(body: bytes) -> Request:
    """The request, or `ValueError`."""
    fields = body.split(b"\0")
    if fields.pop() != b"" or len(fields) < 6:
        raise ValueError("not a request")
    kind, version, install, umask, flags, count = fields[:6]
    number = int(count)
    if not 0 <= number <= len(fields) - 6:
        raise ValueError("not a request")
    return Request(
        kind, fields[6 : 6 + number], fields[6 + number :],
        version=version, install=install, umask=int(umask, 8) & 0o777, flags=flags,
    )  # fmt: skip


def send_request(
    connection: _socket.socket, request: Request, descriptors: tuple[int, int, int, int]
) -> None:
    """Send it, with stdin, stdout, stderr and the current directory."""
    body = request.encode()
    rights = b"".join([fd.to_bytes(4, sys.byteorder) for fd in descriptors])
    header = MAGIC + len(body).to_bytes(4, "big")
    connection.sendmsg([header], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    connection.sendall(body)


def receive_request(connection: _socket.socket) -> tuple[Request, list[int]]:
    """The request and its descriptors; else `ValueError`, after closing the descriptors."""
    room = _socket.CMSG_SPACE(_DESCRIPTORS * 4)
    header, ancillary, flags, _ = connection.recvmsg(
        _HEADER_BYTES, room, _socket.MSG_CMSG_CLOEXEC | _socket.MSG_WAITALL
    )
    descriptors = _descriptors(ancillary)
    try:
        if flags & _socket.MSG_CTRUNC or len(descriptors) != _DESCRIPTORS:
            raise ValueError("a request comes with four descriptors")
        size = int.from_bytes(header[len(MAGIC) :], "big")
        if len(header) != _HEADER_BYTES or header[: len(MAGIC)] != MAGIC or size > MOST_BYTES:
            raise ValueError("not a request")
        return decode(_exactly(connection, size)), descriptors
    except BaseException:
        import os  # the client never needs it

        for fd in descriptors:
            os.close(fd)
        raise


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            whole = len(data) - len(data) % 4
            found += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, whole, 4)]
    return found


def send_reply(connection: _socket.socket, kind: bytes, payload: bytes = b"") -> None:
    connection.sendall(kind + len(payload).to_bytes(4, "big") + payload)


def receive_reply(connection: _socket.socket) -> tuple[bytes, bytes]:
    """The next reply: its kind and what it holds; `EOFError` if the daemon is gone."""
    header = _exactly(connection, 5)
    size = int.from_bytes(header[1:], "big")
    if size > MOST_REPLY_BYTES:
        raise EOFError("not a reply")
    return header[:1], _exactly(connection, size)


def _exactly(connection: _socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        try:
            chunk = connection.recv(min(size - len(out), 1 << 20))
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError("the other side is gone")
        out += chunk
    return out
