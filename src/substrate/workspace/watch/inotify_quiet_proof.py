"""Whether anything at all has happened in a tree, so that a view of it can be used again.

An overlay caches what it has looked up: names, but also a file's mode, owner and size. So there is
a watch on every directory *and on every file*, even if history leaves it out. A watch on the
directory alone is not enough: it does not report writes through another name of a file, and `cp` in
a view with the old size in its cache would copy no more than that.

A file that comes and goes, as a lock does, changes nothing for a view that no process used in
between, so it is counted separately. All other events are counted together. The kernel does not
report, and so this does not count: flags set by `chattr`; and writes to a memory mapping, but those
change nothing that a view caches.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from substrate.errors import MissingDependencyError
from substrate.model import ROOT, RelPath, join
from substrate.system.linux import inotify
from substrate.workspace.paths import Walker
from substrate.workspace.watch.inotify_watch import readable, remote_mount

#: No view shows the store.
_STORE_NAME = b".substrate-git"
#: Each watch costs the kernel about a kilobyte, and other programs need watches, too.
_MOST_WATCHES = 150_000
_SHARE = 2
#: Largest number of new entries to watch at once; for more it is better to start over.
_MOST_AT_ONCE = 2_000
_MOST_PASSING = 100

_CAME = inotify.CREATE | inotify.MOVED_TO
_WENT = inotify.DELETE | inotify.MOVED_FROM
_OF_DIRECTORY = _CAME | _WENT | inotify.ATTRIB | inotify.DELETE_SELF | inotify.MOVE_SELF
_OF_FILE = inotify.MODIFY | inotify.ATTRIB
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LIMIT_FILE = "/proc/sys/fs/inotify/max_user_watches"


#: All watches of this process: they share the limit of one user.
_open: set[StillWatch] = set()


class StillWatch:
    """Call `set_up` once, then `token` at any time; `close` it."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self._walker = Walker(root)
        #: Why it is no longer reliable; a new watch must replace this one.
        self.lost = ""
        self.watches = 0
        self._name = os.urandom(8).hex().encode()
        self._count = 0
        #: Files that came, and may be about to go; and how many have gone again.
        self._passing: set[RelPath] = set()
        self._passed = 0
        self._most = _most_watches()
        self._paths: dict[int, RelPath] = {}
        #: Number of watches per path: nearly always one.
        self._known: Counter[RelPath] = Counter()
        try:
            self._is_of = _identity(self.root)
            self._inotify = inotify.Inotify()
        except OSError as error:
            raise _cannot(error) from error
        _open.add(self)

    @property
    def fd(self) -> int:
        """Readable when something has happened."""
        return self._inotify.fd

    @property
    def is_passing(self) -> bool:
        """Whether there are new files that may disappear again."""
        return bool(self._passing)

    def token(self, *, in_passing: bool = False) -> bytes:
        """As of now: the same as before if nothing has happened (see `watcher_client.tree_of`).

        `in_passing`: ignore new files that may be about to go.
        """
        self.read()
        if not in_passing:
            self.let_stay()
        self._check_root()
        return b"%s.%d/%d" % (self._name, self._count, self._passed)

    def close(self) -> None:
        self._inotify.close()
        _open.discard(self)

    def set_up(self) -> None:
        """Put watches on the whole tree."""
        if remote_mount(self.root):
            raise MissingDependencyError("not a local file system", hint="nothing is lost by it")
        try:
            self._enter(ROOT, self._most)
            self._check_root()
        except OSError as error:
            raise _cannot(error) from error
        if self.lost:
            raise MissingDependencyError(self.lost, hint="each walk then looks everything up again")

    def table(self) -> dict[int, bytes]:
        """The watches from `set_up`, for a process that shares the queue: see `take_over`."""
        return {watch: bytes(path) for watch, path in self._paths.items()}

    def take_over(self, table: Mapping[int, bytes], watches: int) -> None:
        """Adopt the watches that a forked child set up on our queue."""
        self._paths = {watch: RelPath(path) for watch, path in table.items()}
        self._known = Counter(self._paths.values())
        self.watches = watches

    def read(self) -> bool:
        """Process all events until now; returns whether there were any."""
        before = self._count
        for event in self._inotify.read():
            if self._is_passing(event):
                continue
            self._count += 1
            try:
                self._take(event)
            except OSError as error:
                self._lose(_cannot(error).message)
        if self._count != before:
            self._check_root()
        return self._count != before

    def let_stay(self) -> None:
        """Treat files that have come and not gone as permanent."""
        while self._passing:
            path = self._passing.pop()
            self._count += 1
            try:
                self._add(path)
            except OSError as error:
                self._lose(_cannot(error).message)

    def _take(self, event: inotify.Event) -> None:
        if event.mask & inotify.OVERFLOW:
            self._lose("too much at once")
            return
        if event.mask & inotify.IGNORED:
            self._drop(event.watch)
            return
        above = self._paths.get(event.watch)
        if above is None:
            return  # a file, or a directory that was moved
        if not event.name:
            if not above and event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF):
                self._lose("the workspace was moved or removed")
            return
        path = join(above, event.name)
        if not event.mask & (_CAME | _WENT) or path == _STORE_NAME:
            return
        if event.mask & inotify.IS_DIRECTORY:
            # Look again: another directory may be there now. If two directories change places, the
            # kernel reports both as gone, the second one after the first has come.
            self._forget(path)
            self._enter(path, _MOST_AT_ONCE)
        elif event.mask & _CAME:
            self._add(path)

    def _is_passing(self, event: inotify.Event) -> bool:
        """Whether a file comes, or a file that just came is changed, or goes again."""
        above = self._paths.get(event.watch)
        if above is None or not event.name or event.mask & inotify.IS_DIRECTORY:
            return False
        path = join(above, event.name)
        if event.mask & inotify.CREATE and len(self._passing) < _MOST_PASSING:
            self._passing.add(path)
            return True
        if path not in self._passing:
            return False
        if event.mask & inotify.DELETE:
            self._passed += 1
        if event.mask & (_WENT | _CAME):
            self._passing.discard(path)
        return not event.mask & (inotify.MOVED_FROM | _CAME)

    def _enter(self, top: RelPath, most: int) -> None:
        """Watch a directory and everything in it.

        First the watch, then the listing: an entry made in between is in both.
        """
        most += self.watches
        pending = [top]
        while pending:
            path = pending.pop()
            try:
                found = self._enter_one(path)
            except OSError as error:
                if error.errno in _GONE and path:
                    continue  # an event will report it
                raise
            for name, is_dir in found:
                below = join(path, name)
                if is_dir and below != _STORE_NAME:
                    pending.append(below)
                elif not is_dir:
                    self._add(below)
            if self.watches + len(pending) > min(most, self._most):
                self._lose("too many files")
                return

    def _enter_one(self, path: RelPath) -> list[tuple[bytes, bool]]:
        """The entries in it, each with its name and whether it is a directory.

        Symlinks on the way are not followed: the directory would be known by a path that is not its
        own, and forgotten with that path.
        """
        with self._walker.directory(path) as directory:
            watch = self._inotify.add_open(readable(directory), _OF_DIRECTORY)
            self._drop(watch)  # a moved directory has this watch already, for another path
            self._paths[watch] = path
            self._known[path] += 1
            self.watches += 1
            with os.scandir(directory.itself()) as entries:
                found = [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]
        return [(os.fsencode(name), is_dir) for name, is_dir in found]

    def _add(self, path: RelPath) -> None:
        """Watch a file; if it is gone already, an event will report it."""
        try:
            self._inotify.add(self._where(path), _OF_FILE)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return
        self.watches += 1

    def _check_root(self) -> None:
        """If a directory above is moved, no event reports it; another tree may have that path."""
        try:
            if self._is_of == _identity(self.root):
                return
        except OSError:
            pass
        self._lose("the workspace was moved or removed")

    def _where(self, path: RelPath) -> bytes:
        return self.root + b"/" + path

    def _forget(self, top: RelPath) -> None:
        """A directory disappeared from there, or another one came. Files keep their watches."""
        if top not in self._known:  # nor anything in it: a new directory, as nearly always
            return
        inside = top + b"/"
        gone = [w for w, path in self._paths.items() if path == top or path.startswith(inside)]
        for watch in gone:
            self._drop(watch)
            try:
                self._inotify.remove(watch)
            except OSError:
                pass  # the directory is gone, and its watch with it

    def _drop(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is None:
            return
        self._known[path] -= 1
        if not self._known[path]:
            del self._known[path]

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._count += 1


def _identity(root: bytes) -> tuple[int, int]:
    at = os.stat(root)
    return at.st_dev, at.st_ino


def _most_watches() -> int:
    try:
        with open(_LIMIT_FILE, encoding="ascii") as file:
            left = int(file.read()) // _SHARE - sum(one.watches for one in _open)
            return min(_MOST_WATCHES, left)
    except (OSError, ValueError):
        return 0


def _cannot(error: OSError) -> MissingDependencyError:
    if error.errno == errno.ENOSPC:
        return MissingDependencyError(
            "fs.inotify.max_user_watches is used up, also by others of this user",
            hint="as root: sysctl fs.inotify.max_user_watches=1048576",
        )
    return MissingDependencyError(
        f"not all of it can be watched: {error.strerror or error}",
        hint="each walk then looks everything up again",
    )
