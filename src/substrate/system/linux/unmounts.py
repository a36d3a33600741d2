"""Hearing when a file system is gone for good: nobody has a file or a directory of it any more.

A mount that was taken away lazily lives on for who is still in it. inotify says when it ends, and
does not keep it alive itself.
"""

from __future__ import annotations

import os
import struct

from substrate.system.linux import calls

_IN_DELETE_SELF = 0x400
_IN_UNMOUNT = 0x2000
_EVENT = struct.Struct("iIII")


class Unmounts:
    """What was watched, by the number that `watch` gave."""

    def __init__(self) -> None:
        self._fd = calls.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def watch(self, path: bytes) -> int:
        """Watch the file system that shows at `path`."""
        # One event has to be asked for; the end of the file system is told in any case.
        return calls.call("inotify_add_watch", self._fd, path, _IN_DELETE_SELF)

    def gone(self) -> list[int]:
        """Those that have ended since the last time; never waits."""
        found: list[int] = []
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _IN_UNMOUNT:
                    found.append(number)
