"""inotify(7): the kernel reports what happens in directories.

An event is in the queue before the call that caused it returns. So once the queue is empty, the
reader knows of everything that happened before, and needs no marker file to be sure.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from substrate.system.linux import syscalls

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
UNMOUNT = 0x2000
OVERFLOW = 0x4000
IGNORED = 0x8000
IS_DIRECTORY = 0x40000000

_ONLY_DIRECTORIES = 0x1000000
_DO_NOT_FOLLOW = 0x2000000
_NOT_WHEN_UNLINKED = 0x4000000
_ADD_TO_MASK = 0x20000000
_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class Event(NamedTuple):
    #: Which watch it came from; -1 with `OVERFLOW`.
    watch: int
    mask: int
    #: The directory entry that the event is about; empty: the directory itself.
    name: bytes


class Inotify:
    """One queue of events, bounded by the kernel. Close it."""

    def __init__(self) -> None:
        self.fd = syscalls.call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, path: bytes, mask: int) -> int:
        """Watch a file under all its names, or a directory.

        A second call for the same file returns the same number and adds to the events that are
        watched.
        """
        return self._add(path, mask | _DO_NOT_FOLLOW)

    def add_open(self, directory: int, mask: int) -> int:
        """Watch a directory by its descriptor, wherever it is."""
        return self._add(b"/proc/self/fd/%d/." % directory, mask | _ONLY_DIRECTORIES)

    def _add(self, path: bytes, mask: int) -> int:
        flags = _NOT_WHEN_UNLINKED | _ADD_TO_MASK
        return syscalls.call("inotify_add_watch", self.fd, path, mask | flags)

    def remove(self, watch: int) -> None:
        syscalls.call("inotify_rm_watch", self.fd, watch)

    def read(self) -> list[Event]:
        """Everything that has happened until now; does not wait."""
        events: list[Event] = []
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return events
            at = 0
            while at < len(data):
                watch, mask, _, size = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                events.append(Event(watch, mask, data[at : at + size].rstrip(b"\0")))
                at += size

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Unmounts:
    """Reports when a file system is released: no process has a file or directory of it open.

    A lazily unmounted file system exists as long as a process is still in it; watching does not
    keep it alive. File systems go by the number that `watch` returned.
    """

    def __init__(self) -> None:
        self._fd = syscalls.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def watch(self, path: bytes) -> int:
        """Watch the file system mounted at `path`."""
        # At least one event must be asked for; the end of the file system is always reported.
        return syscalls.call("inotify_add_watch", self._fd, path, DELETE_SELF)

    def gone(self) -> list[int]:
        """Numbers of those that have ended since the last call; never waits."""
        found: list[int] = []
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                number, mask, _, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size + length
                if mask & UNMOUNT:
                    found.append(number)
