"""Names that a view does not show, though somebody makes them in the tree below: git's locks.

An overlay remembers what it found under a name. If it found nothing, it does not ask again, and
another git's lock is not seen. If it found one, that is in sight for as long as the command runs.
And once the command has had a lock of its own there, and has renamed it away, nothing is
remembered, and the next look decides. So the world's init looks first, whenever a name has gone.

What it finds in spite of that is the command's own, or it was made below in that very moment, and
is taken out of the view. The kernel tells whose it is: of what is done below nothing is heard here.
It is taken out of the very directory that is listened to, and out of no other that the command,
or a shell's next line, has put in its place.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import suppress

from substrate.system.linux import inotify

_HEARD = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE
_MADE = inotify.CREATE | inotify.MOVED_TO
#: A command that is at a name each time we look is left alone: the next event comes soon.
_MOST_LOOKS = 20
_TO_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look_for(paths: Iterable[bytes]) -> None:
    """Have an overlay remember that nothing is there."""
    for path in paths:
        with suppress(OSError):
            os.lstat(path)


def take_out(root: bytes, paths: Iterable[bytes]) -> None:
    """The same, before a command begins in the view at `root`: what is there is not its own."""
    for path in paths:
        with suppress(OSError):
            os.lstat(path)
            # What is mounted in there is the real thing.
            if os.stat(os.path.dirname(path)).st_dev == os.stat(root).st_dev:
                os.unlink(path)


class Absent:
    """Keeps `names` below `root`, where an overlay is mounted, out of sight.

    One that is there at the start may be the command's, and stays until it has gone.
    Without the kernel's help (there may be too many who watch something) it looks once.
    """

    def __init__(self, root: bytes, names: tuple[bytes, ...]) -> None:
        self._paths = [os.path.join(root, name) for name in names]
        self._own: set[bytes] = set()
        self._directories: dict[int, bytes] = {}
        self._numbers = itertools.count()
        self._events: inotify.Inotify | None = None
        #: Device and inode of each of them.
        self._known: dict[bytes, tuple[int, int]] = {}
        with suppress(OSError):
            self._watch(root)
        # The command may have begun, and have one: nothing was heard of that.
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
                # What is mounted in there is the real thing: nothing is ever taken out of that.
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
            # Who makes a name holds the directory until it is told. A name that was never looked
            # for makes us wait for that.
            with suppress(FileNotFoundError):
                os.lstat(b".substrate-look-%d" % next(self._numbers), dir_fd=directory)
            if path in self._listen():
                continue  # the command was at it in that moment: what was seen tells nothing
            if self._events is not None and path not in self._own:
                os.unlink(name, dir_fd=directory)
            return

    def _listen(self) -> set[bytes]:
        """The names that something was done to since."""
        heard: set[bytes] = set()
        for event in [] if self._events is None else self._events.read():
            if event.mask & (inotify.OVERFLOW | inotify.IGNORED):
                self.close()  # from now on nobody knows whose anything is
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
