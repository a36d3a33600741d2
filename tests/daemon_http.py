"""A client of the daemon's socket, with nothing between: for polite requests and for others."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 60.0


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error, in the shape that every error has."""
        error = self.document["error"]
        assert set(error) == {"kind", "message", "hint"}
        return dict(error)

    @property
    def stdout(self) -> bytes:
        return base64.b64decode(self.document["stdout_b64"])

    @property
    def stderr(self) -> bytes:
        return base64.b64decode(self.document["stderr_b64"])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path)


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S)
    # A test's path may be longer than an address: go there by a short way.
    import os

    fd = os.open(path.parent, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
    return connection


def request(
    path: Path, method: str, route: str, body: object = None, headers: dict[str, str] | None = None
) -> Answer:
    connection = UnixConnection(path)
    try:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        connection.request(method, route, data, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.read(), dict(response.getheaders()))
    finally:
        connection.close()


def raw(path: Path, data: bytes) -> bytes:
    """Send these bytes and read until the other side closes."""
    with connected(path) as connection:
        connection.sendall(data)
        return drained(connection)


def drained(connection: socket.socket) -> bytes:
    out = b""
    try:
        while chunk := connection.recv(65536):
            out += chunk
    except ConnectionResetError:
        pass
    return out
