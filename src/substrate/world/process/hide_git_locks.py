"""Names that a view must not show, even if they are created in the tree below: git's locks.

An overlay remembers what it found under a name. If it found nothing, it does not look again, and
another git's lock is not visible. If it found a lock, that is visible for as long as the command
runs. But after the command has made its own lock there and renamed it away, nothing is remembered,
and the next lookup decides. So the world's init does a lookup first, whenever a name is gone.

What that lookup finds is either the command's own, or it was created below at that moment, and
is then removed from the view. inotify shows which: it reports nothing of what happens below. The
name is removed only from the directory that is watched, never from another directory that the
command, or a shell's next line, has put in its place.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import suppress

from substrate.system.linux import inotify

_HEARD = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE
_MADE = inotify.CREATE | inotify.MOVED_TO
#: A name that the command uses each time we look is left alone: the next event comes soon.
_MOST_LOOKS = 20
# Only Linux has O_PATH, and other systems import this module too.
_TO_LOOK = getattr(os, "O_PATH", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def look_for(paths: Iterable[bytes]) -> None:
    """Make an overlay remember that nothing is there."""
    for path in paths:
        with suppress(OSError):
            os.lstat(path)


def take_out(root: bytes, paths: Iterable[bytes]) -> None:
    """The same, before a command begins in the view at `root`: names there are not its own."""
    for path in paths:
        with suppress(OSError):
            os.lstat(path)
            # A mount in there is the real directory: nothing is removed from it.
            if os.stat(os.path.dirname(path)).st_dev == os.stat(root).st_dev:
                os.unlink(path)


class Absent:
    """Hides `names` below `root`, where an overlay is mounted.

    A name that exists at the start may be the command's own, and is left until it is gone.
    Without inotify (there may be too many instances) it looks only once.
    """

    def __init__(self, root: bytes, names: tuple[bytes, ...]) -> None:
        self._paths = [os.path.join(root, name) for name in names]
        self._own: set[bytes] = set()
        self._directories: dict[int, bytes] = {}
        self._numbers = itertools.count()
        self._events: inotify.Inotify | None = None
        #: Device and inode of each directory.
        self._known: dict[bytes, tuple[int, int]] = {}
        with suppress(OSError):
            self._watch(root)
        # The command may have begun, and may have made one before we could see it.
        self._own.update(path for path in self._paths if os.path.lexists(path))

    @property
    def fd(self) -> int:
        """Readable when it is time to look; -1: never."""
        return -1 if self._events is None else self._events.fd

    def look_again(self) -> None:
        self._listen()
        self._look()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _watch(self, root: bytes) -> None:
        device = os.stat(root).st_dev
        self._events = inotify.Inotify()
        for directory in {os.path.dirname(path) for path in self._paths}:
            with suppress(OSError):
                # A mount in there is the real directory: nothing is ever removed from it.
                known = _identity(os.lstat(directory))
                if known[0] == device:
                    self._directories[self._events.add(directory, _HEARD)] = directory
                    self._known[directory] = known

    def _look(self) -> None:
        for path in self._paths:
            with suppress(OSError):
                above = os.path.dirname(path)
                directory = os.open(above, _TO_LOOK)
                try:
                    if _identity(os.fstat(directory)) == self._known.get(above):
                        self._look_at(path, directory)
                finally:
                    os.close(directory)

    def _look_at(self, path: bytes, directory: int) -> None:
        name = os.path.basename(path)
        for _ in range(_MOST_LOOKS):
            os.lstat(name, dir_fd=directory)
            # A process that creates a name holds the directory's lock until the event is sent.
            # Looking up a name for the first time makes us wait for that lock.
            with suppress(FileNotFoundError):
                os.lstat(b".substrate-look-%d" % next(self._numbers), dir_fd=directory)
            if path in self._listen():
                continue  # the command used it at that moment: what we saw means nothing
            if self._events is not None and path not in self._own:
                os.unlink(name, dir_fd=directory)
            return

    def _listen(self) -> set[bytes]:
        """The names that have changed since the last call."""
        heard: set[bytes] = set()
        for event in [] if self._events is None else self._events.read():
            if event.mask & (inotify.OVERFLOW | inotify.IGNORED):
                self.close()  # from now on it is unknown which names are the command's
                break
            path = os.path.join(self._directories.get(event.watch, b""), event.name)
            heard.add(path)
            if event.mask & _MADE:
                self._own.add(path)
            else:
                self._own.discard(path)
        return heard


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
