"""Run one command through the daemon's HTTP interface, whose answer names the world it made."""

from __future__ import annotations

import http.client
import json
import socket
import time

from substrate.client import autostart
from substrate.mcp_server.command_line import CommandLine, Document, RefusedCallError
from substrate.system import daemon_paths

#: How long to wait for a daemon that the first call started.
_DAEMON_S = 10.0
_PAUSE_S = 0.05
#: On top of the command's own timeout: recording and applying take time, too.
_MARGIN_S = 120.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the daemon's socket, which must belong to this user."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("localhost")
        self.sock = connected

    def connect(self) -> None:
        raise http.client.NotConnected


def run_in_world(cli: CommandLine, body: Document) -> Document:
    """The answer of ``POST /v1/execute``; raises `RefusedCallError`."""
    document = {**body, "cwd": str(cli.project)}
    connection = _UnixConnection(_connected(float(body["timeout_s"]) + _MARGIN_S))
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/execute", json.dumps(document), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RefusedCallError(
            "lost", f"the daemon gave no answer: {error}", "call log to see what was recorded"
        ) from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        wrong = found.get("error", {})
        raise RefusedCallError(
            str(wrong.get("kind")), str(wrong.get("message")), str(wrong.get("hint", ""))
        )
    assert isinstance(found, dict)
    return found


def _connected(timeout_s: float) -> socket.socket:
    path = daemon_paths.socket_path(daemon_paths.variables())
    if path is None:
        raise RefusedCallError("missing", "there is no home directory", "set HOME")
    deadline = time.monotonic() + _DAEMON_S
    while True:
        try:
            connection = daemon_paths.connect(path)
            break
        except OSError as error:
            autostart.start(path)  # at most one; another call may be starting it
            if time.monotonic() > deadline:
                raise RefusedCallError(
                    "missing", f"the daemon does not answer: {error}",
                    "the user can start it: substrate daemon serve",
                ) from error  # fmt: skip
        time.sleep(_PAUSE_S)
    found = socket.socket(fileno=connection.detach())
    found.settimeout(timeout_s)
    return found
