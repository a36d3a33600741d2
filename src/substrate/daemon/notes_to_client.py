"""What Substrate itself writes to stderr, separate from what the command writes there.

An HTTP client reads the command's stderr from a pipe. Substrate's notes and errors go over the
connection instead, each as a report: ``{"event_type": "note", "text": …}``.
"""

from __future__ import annotations

import _socket
import io
import json
import os
from typing import TYPE_CHECKING

from substrate.protocol import daemon_wire

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EVENT = "note"
_MOST_BYTES = 64 * 1024


class OwnWords(io.RawIOBase):
    """A stream whose bytes go to the caller as reports.

    A child process that inherits it writes to descriptor 2: two processes must not share the
    connection.
    """

    def __init__(self, connection: _socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self._pid = os.getpid()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        some = bytes(memoryview(data)[:_MOST_BYTES])
        if os.getpid() != self._pid:
            return os.write(2, some)
        text = some.decode("utf-8", "replace")
        try:
            said = json.dumps({"event_type": EVENT, "text": text}).encode()
            daemon_wire.send_reply(self._connection, daemon_wire.REPORT, said)
        except OSError:
            pass  # the caller is gone; `_Link` in the runner ends the command
        return len(some)


def notes_stream(connection: _socket.socket) -> io.TextIOWrapper:
    """A replacement for `sys.stderr` that sends whole lines."""
    raw = io.BufferedWriter(OwnWords(connection), _MOST_BYTES)
    return io.TextIOWrapper(raw, "utf-8", line_buffering=True)
