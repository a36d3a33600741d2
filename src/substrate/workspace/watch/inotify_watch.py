"""Which paths of the tree other processes may have changed, as inotify reports.

There is a watch on every directory that history looks into. A path in an event is only a *suspect*:
the recorder compares it with history, which also shows that our own writes are not new.

    event                        suspect
    file made, written, moved…   the file
    directory made, moved, gone  the directory, and all below it: it may have been filled before
                                 its watch was set
    a directory's mode           the directory alone

Not reported: writes through a memory mapping until it is closed (`system/linux/shared_mappings.py`
finds those), writes through a hard link from outside the tree (`read_linked` compares such files),
and what other machines do on a network file system (which is not watched at all).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.model import ROOT, RelPath, join, split
from substrate.system.files import folds_names
from substrate.system.linux import inotify, mounts
from substrate.workspace.exclude import IGNORE_NAME, METADATA_FILES, Exclusions
from substrate.workspace.paths import Directory, Walker
from substrate.workspace.watch.linked_files import LinkedFiles
from substrate.workspace.workspace_location import STORE_NAME

#: Largest number of directories to watch: each costs the kernel about a kilobyte.
MOST_DIRECTORIES = 1 << 16
#: Largest number of suspects to remember one by one: beyond that a scan is faster.
MOST_SUSPECTS = 20_000
#: Largest number of files with several names, which are compared one by one.
MOST_LINKED = 20_000
#: Largest number of new directories to watch at once; for more it is better to start over.
MOST_AT_ONCE = 2_000

_CAME = inotify.CREATE | inotify.MOVED_TO
_WENT = inotify.DELETE | inotify.MOVED_FROM
_WANTED = (
    _CAME | _WENT | inotify.MODIFY | inotify.ATTRIB | inotify.CLOSE_WRITE
    | inotify.DELETE_SELF | inotify.MOVE_SELF
)  # fmt: skip
_OWN_FILES = frozenset(os.fsencode(name) for name in METADATA_FILES)
#: Other machines may change files there without an event in this kernel.
_REMOTE = frozenset(
    {b"nfs", b"nfs4", b"cifs", b"smb3", b"9p", b"ceph", b"afs", b"virtiofs", b"vboxsf", b"gfs2"}
)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM)


class Suspect(NamedTuple):
    #: Counts events: a suspect with a higher number than an answer was not part of that answer.
    generation: int
    #: Whether anything below may have changed, too.
    deep: bool


class TreeWatch:
    """Call `set_up` once, then `read` at any time; `close` it.

    `MissingDependencyError` says why a tree cannot be watched; callers then go on without.
    """

    def __init__(self, root: Path, exclusions: Exclusions) -> None:
        self.root = os.fsencode(root)
        self._walker = Walker(root)
        self.exclusions = exclusions
        self.suspects: dict[RelPath, Suspect] = {}
        self.generation = 0
        #: Why the suspects are incomplete; a new watch, and a scan, must replace this one.
        self.lost = ""
        self._paths: dict[int, RelPath] = {}
        self._watches: dict[RelPath, int] = {}
        self._below: dict[RelPath, set[bytes]] = {}
        self.linked = LinkedFiles(self.root)
        try:
            self.identity = _identity(self.root)
            self._inotify = inotify.Inotify()
        except OSError as error:
            raise _cannot(error) from error

    @property
    def fd(self) -> int:
        """Readable when there is something to read."""
        return self._inotify.fd

    @property
    def directories(self) -> int:
        return len(self._paths)

    def close(self) -> None:
        self._inotify.close()

    def set_up(self) -> None:
        """Put watches on the whole tree; from now on changes will be known."""
        remote = remote_mount(self.root)
        if remote:
            raise MissingDependencyError(
                f"{os.fsdecode(remote)} is not a local file system: changes there are not all told",
                hint="commands still compare what they touch",
            )
        root = Path(os.fsdecode(self.root))
        if folds_names(root, root / STORE_NAME):
            raise MissingDependencyError(
                "names fold here: an event's name may be another spelling of a file's own",
                hint="a scan finds the changes of each command",
            )
        try:
            self._enter(ROOT, MOST_DIRECTORIES)
        except OSError as error:
            raise _cannot(error) from error
        if self.lost:
            raise MissingDependencyError(
                self.lost, hint="name bulk that need not be recorded in .substrateignore"
            )

    def table(self) -> dict[bytes, int]:
        """The watches from `set_up`, for a process that shares the queue: see `take_over`."""
        return {bytes(path): watch for path, watch in self._watches.items()}

    def take_over(self, table: Mapping[bytes, int]) -> None:
        """Adopt the watches that a forked child set up on our queue."""
        for path, watch in table.items():
            self._note(RelPath(path), watch)

    def is_same_place(self) -> bool:
        """Whether the root's path still leads to the directory that is watched."""
        try:
            return _identity(self.root) == self.identity
        except OSError:
            return False

    def read(self) -> bool:
        """Process all events until now; returns whether any of them matters."""
        before = self.generation
        for event in self._inotify.read():
            self._take(event)
        return self.generation != before or bool(self.lost)

    def read_linked(self) -> None:
        """Compare the files that can change without an event."""
        for path in self.linked.changed():
            self.suspect(path)

    def settled(self, generation: int) -> None:
        """The suspects up to that generation are recorded: keep only later ones."""
        self.suspects = {
            path: one for path, one in self.suspects.items() if one.generation > generation
        }

    def suspect(self, path: RelPath, *, deep: bool = True) -> None:
        """Add a suspect that a scan or an event found."""
        self.generation += 1
        known = self.suspects.get(path)
        self.suspects[path] = Suspect(self.generation, deep or (known is not None and known.deep))
        if len(self.suspects) > MOST_SUSPECTS:
            self._lose("too many changes at once")

    def _take(self, event: inotify.Event) -> None:
        if event.mask & inotify.OVERFLOW:
            self._lose("too many changes at once")
            return
        above = self._paths.get(event.watch)
        if above is None:
            return  # from a directory that was moved or removed
        if event.mask & inotify.IGNORED:
            self._forget(above)
        if not event.name:
            if not above and event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF):
                self._lose("the workspace was moved or removed")
            return
        path, is_dir = join(above, event.name), bool(event.mask & inotify.IS_DIRECTORY)
        if self._is_left_out(path, is_dir):
            return
        if not above and event.name == os.fsencode(IGNORE_NAME):
            self._lose("the rules of what is left out have changed")
        if is_dir and event.mask & (_CAME | _WENT):
            # Look again: another directory may be there now. If two directories change places, the
            # kernel reports both as gone, the second one after the first has come.
            self._forget(path)
            self._take_up(path)
        if not is_dir:
            self.linked.look(path)
        self.suspect(path, deep=not is_dir or bool(event.mask & (_CAME | _WENT)))

    def _is_left_out(self, path: RelPath, is_dir: bool) -> bool:
        if not (is_dir or self.exclusions.may_exclude_files or split(path)[1] in _OWN_FILES):
            return False
        return self.exclusions.own_reason(path, is_dir=is_dir, size=0) is not None

    def _take_up(self, path: RelPath) -> None:
        try:
            self._enter(path, MOST_AT_ONCE)
        except OSError as error:
            self._lose(_cannot(error).message)

    def _enter(self, top: RelPath, most: int) -> None:
        """Watch a directory and everything below it.

        First the watch, then the listing: an entry made in between is in both.
        """
        pending = [top]
        while pending:
            path = pending.pop()
            try:
                # Symlinks are not followed: the directory would be known by a path that is not its
                # own.
                with self._walker.directory(path) as directory:
                    watch = self._inotify.add_open(readable(directory), _WANTED)
                    names = self._directories_in(path, directory.itself())
            except OSError as error:
                # Gone again, which an event will report; or not accessible for us, nor for a scan.
                if error.errno in _GONE and path:
                    continue
                raise
            self._note(path, watch)
            pending += [join(path, name) for name in names]
            most -= 1
            if most < len(pending) or len(self._paths) > MOST_DIRECTORIES:
                self._lose("too many directories")
                return
            if len(self.linked) > MOST_LINKED:
                self._lose("too many files with several hard links")
                return

    def _directories_in(self, path: RelPath, where: int | bytes) -> list[bytes]:
        names = []
        with os.scandir(where) as entries:
            for one in entries:
                name = os.fsencode(one.name)
                if one.is_dir(follow_symlinks=False):
                    names.append(name)
                elif one.is_file(follow_symlinks=False):
                    self._note_linked(join(path, name), one)
        reason = self.exclusions.own_reason
        return [name for name in names if reason(join(path, name), is_dir=True, size=0) is None]

    def _note_linked(self, path: RelPath, entry: os.DirEntry[bytes] | os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return  # gone again, which an event will report
        if found.st_nlink > 1 and not self._is_left_out(path, is_dir=False):
            self.linked.note(path, found)

    def _note(self, path: RelPath, watch: int) -> None:
        old = self._paths.get(watch)
        if old is not None and old != path:  # renamed before we read the event
            self._forget(old, keep=watch)
        self._paths[watch] = path
        self._watches[path] = watch
        if path:
            above, name = split(path)
            self._below.setdefault(above, set()).add(name)

    def _forget(self, top: RelPath, keep: int = -1) -> None:
        """Remove the watches of a directory and of everything below it."""
        above, name = split(top)
        self._below.get(above, set()).discard(name)
        pending = [top]
        while pending:
            path = pending.pop()
            pending += [join(path, name) for name in self._below.pop(path, ())]
            watch = self._watches.pop(path, None)
            if watch is None:
                continue
            self._paths.pop(watch, None)
            if watch != keep:
                try:
                    self._inotify.remove(watch)
                except OSError:
                    pass  # the directory is gone, and its watch with it

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        self.generation += 1
        self.suspects.clear()


def _identity(root: bytes) -> tuple[int, int]:
    found = os.stat(root)
    return found.st_dev, found.st_ino


def readable(directory: Directory) -> int:
    """Its descriptor; `PermissionError` if it cannot be listed."""
    if directory.fd is None or not directory.is_readable:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return directory.fd


def remote_mount(root: bytes) -> bytes:
    """A mount at, above or below the root that other machines or a FUSE daemon can change."""
    found = mounts.mounts()
    covering = [m for m in found if _is_at_or_below(root, m.target)]
    inside = [m for m in found if _is_at_or_below(m.target, root)]
    if covering:
        inside.append(max(covering, key=lambda one: len(one.target)))
    for mount in inside:
        if mount.fstype in _REMOTE or mount.fstype.split(b".")[0] in (b"fuse", b"fuseblk"):
            return mount.target
    return b""


def _is_at_or_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top.rstrip(b"/") + b"/")


def _cannot(error: OSError) -> MissingDependencyError:
    limit = {
        errno.ENOSPC: "fs.inotify.max_user_watches",
        errno.EMFILE: "fs.inotify.max_user_instances",
    }.get(error.errno or 0)
    if limit is None:
        return MissingDependencyError(
            f"the tree cannot be watched: {error.strerror or error}",
            hint="commands still compare what they touch",
        )
    return MissingDependencyError(
        f"the limit {limit} is reached", hint=f"as root: sysctl {limit}=524288"
    )
