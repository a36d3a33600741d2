"""Reaching a path by directory descriptors, so that no symlink on the way can lead outside.

A path is opened component by component, each with O_NOFOLLOW | O_DIRECTORY relative to the one
before; a long path by a single call with the same rule. If a directory becomes a symlink during the
walk, it fails instead of following it. Where the system has no such calls (Windows) each component
is checked first.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from substrate.model import RelPath
from substrate.system.files import exchange, fsync_fd, rename_new
from substrate.system.linux import open_in_root

#: Whether the system has calls that take a directory's descriptor.
BY_DESCRIPTOR = {os.open, os.stat, os.unlink, os.mkdir, os.rename, os.readlink} <= (
    os.supports_dir_fd
)
_READ = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
#: Enough to walk through a directory that may be searched but not read.
_PATH_ONLY = getattr(os, "O_PATH", 0)
#: No symlink is followed, no line end translated.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

#: Called before a directory is entered, with (containing directory, name, path, owner bits that
#: will be needed): it may give a directory of ours those bits for the moment.
Opener = Callable[["Directory", bytes, RelPath, int], None]

SEARCH, CHANGE, READ, ALL = 0o100, 0o300, 0o500, 0o700

#: A path with more components is first tried with one call: walking through all of them, for each
#: directory of a deep tree, costs the square of its depth.
_MANY_COMPONENTS = 8


class _Shared:
    """A descriptor that several `Directory`s use; the last of them closes it."""

    __slots__ = ("fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 1

    def let_go(self) -> None:
        self.users -= 1
        if self.users == 0:
            os.close(self.fd)


class Directory:
    """An open directory. Names are bytes and single components; no call here follows a symlink."""

    def __init__(
        self,
        fd: int | None,
        path: bytes,
        *,
        path_only: bool = False,
        shared: _Shared | None = None,
    ) -> None:
        self._path_only = path_only
        self._shared = shared
        #: None where the system has no descriptor-relative calls.
        self.fd = fd
        #: Where it was found; for messages, and for the calls of systems without descriptors.
        self.path = path

    @classmethod
    def open_root(cls, path: Path) -> Directory:
        """The directory at `path`, whose own location is trusted (symlinks in it are followed)."""
        raw = os.fsencode(path)
        if not BY_DESCRIPTOR:
            if not os.path.isdir(raw):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), raw)
            return cls(None, raw)
        return cls(os.open(raw, os.O_RDONLY | os.O_DIRECTORY), raw)

    def again(self) -> Directory:
        """The same directory again, wherever it is by now; the caller closes it."""
        if self.fd is None:
            return Directory.open_root(Path(os.fsdecode(self.path)))
        return Directory(os.dup(self.fd), self.path, path_only=self._path_only)

    def child(self, name: bytes) -> Directory:
        """The directory with that name; `NotADirectoryError` for a symlink as for a file."""
        below = os.path.join(self.path, name)
        if self.fd is None:
            if not is_real_directory(os.lstat(below)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), below)
            return Directory(None, below)
        try:
            return Directory(os.open(name, _READ, dir_fd=self.fd), below)
        except PermissionError:
            if not _PATH_ONLY:
                raise
            fd = os.open(name, _READ | _PATH_ONLY, dir_fd=self.fd)
            return Directory(fd, below, path_only=True)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotADirectoryError(errno.ENOTDIR, "a link in the way", below) from error
            raise

    def descendant(self, names: list[bytes]) -> Directory | None:
        """The directory some levels down, by one call; None: only step by step, if at all."""
        if self.fd is None or sys.platform != "linux":
            return None
        path = b"/".join(names)
        try:
            return Directory(
                open_in_root.open_directory(self.fd, path), os.path.join(self.path, path)
            )
        except OSError:
            return None  # no permission, too long, a symlink, missing: the walk finds out which

    def close(self) -> None:
        fd, self.fd = self.fd, None
        if fd is None:
            return
        if self._shared is None:
            os.close(fd)
        else:
            self._shared.let_go()

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_readable(self) -> bool:
        """Whether it can be listed and synced: opened in full, not just to be walked through."""
        return not self._path_only

    def itself(self) -> int | bytes:
        """The argument for calls on the directory itself: its descriptor, or else its path."""
        return self.path if self.fd is None else self.fd

    def sync(self) -> None:
        """Make its names, mode and attributes durable, as far as it is open for that."""
        if self.fd is not None and self.is_readable:
            fsync_fd(self.fd)

    def _at(self, name: bytes) -> bytes:
        return name if self.fd is not None else os.path.join(self.path, name)

    # The calls, each on one name in this directory.

    def own_stat(self) -> os.stat_result:
        return os.fstat(self.fd) if self.fd is not None else os.lstat(self.path)

    def lstat(self, name: bytes) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self.fd, follow_symlinks=False)

    def exists(self, name: bytes) -> bool:
        try:
            self.lstat(name)
        except FileNotFoundError:
            return False
        return True

    def open(self, name: bytes, flags: int, mode: int = 0o600) -> int:
        return os.open(self._at(name), flags | _AS_IT_IS, mode, dir_fd=self.fd)

    def readlink(self, name: bytes) -> bytes:
        return os.readlink(self._at(name), dir_fd=self.fd)

    def symlink(self, target: bytes, name: bytes) -> None:
        os.symlink(target, self._at(name), dir_fd=self.fd)

    def mkfifo(self, name: bytes) -> None:
        os.mkfifo(self._at(name), 0o600, dir_fd=self.fd)

    def mkdir(self, name: bytes) -> None:
        os.mkdir(self._at(name), 0o700, dir_fd=self.fd)

    def unlink(self, name: bytes) -> None:
        os.unlink(self._at(name), dir_fd=self.fd)

    def rmdir(self, name: bytes) -> None:
        os.rmdir(self._at(name), dir_fd=self.fd)

    def names(self) -> list[bytes]:
        """The names in the directory, sorted; `OSError` for an O_PATH directory."""
        with os.scandir(self.itself()) as found:
            return sorted(os.fsencode(entry.name) for entry in found)

    def chmod(self, name: bytes, mode: int) -> None:
        """Change the mode of a file, directory or FIFO; raises if it has become a symlink."""
        if _PATH_ONLY and self.fd is not None:
            fd = os.open(name, _PATH_ONLY | os.O_NOFOLLOW, dir_fd=self.fd)
            try:
                if stat.S_ISLNK(os.fstat(fd).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
                # The kernel has no fchmod for O_PATH; this is the documented workaround.
                os.chmod(f"/proc/self/fd/{fd}", mode)
            finally:
                os.close(fd)
        elif os.chmod in os.supports_follow_symlinks:
            os.chmod(self._at(name), mode, dir_fd=self.fd, follow_symlinks=False)
        elif stat.S_ISLNK(self.lstat(name).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        else:
            os.chmod(self._at(name), mode, dir_fd=self.fd)

    def chown(self, name: bytes, uid: int, gid: int) -> None:
        if hasattr(os, "chown"):
            os.chown(self._at(name), uid, gid, dir_fd=self.fd, follow_symlinks=False)

    def exchange(self, name: bytes, other: Directory, other_name: bytes) -> bool:
        return exchange(
            self._at(name), other._at(other_name), src_dir_fd=self.fd, dst_dir_fd=other.fd
        )

    def rename_new(self, name: bytes, other: Directory, other_name: bytes) -> None:
        rename_new(self._at(name), other._at(other_name), src_dir_fd=self.fd, dst_dir_fd=other.fd)


def is_real_directory(info: os.stat_result) -> bool:
    """A directory, and not a Windows junction, which leads elsewhere like a symlink."""
    return stat.S_ISDIR(info.st_mode) and not getattr(info, "st_reparse_tag", 0)


class _Kept(NamedTuple):
    path: RelPath
    shared: _Shared
    where: bytes
    device: int
    inode: int


class Walker:
    """Opens the directory that holds a path, always from the root, never through symlinks.

    `root`: its path, or the open directory itself: then it is the same one for every path, even if
    it is moved. `keep`: the last directory stays open for the next path in it, after a check that
    it is still the one at that path; the caller closes the walker.
    """

    def __init__(
        self, root: Path | Directory, opener: Opener | None = None, *, keep: bool = False
    ) -> None:
        self._root = root
        self._opener = opener
        self._keep = keep and BY_DESCRIPTOR
        self._last: _Kept | None = None

    def close(self) -> None:
        """Close the directory that was kept open; the walker stays usable."""
        last, self._last = self._last, None
        if last is not None:
            last.shared.let_go()

    def parent_of(self, path: RelPath, bits: int = CHANGE) -> tuple[Directory, bytes]:
        """``(open directory, last name)``; the caller closes the directory.

        `bits`: what the opener is asked for; `SEARCH` is enough to change an entry that keeps its
        name. `FileNotFoundError`: a directory above is missing. `NotADirectoryError`: something
        above is a symlink or a file. `PermissionError`: no access, and no opener could give it.
        """
        above, _, name = path.rpartition(b"/")
        last = self._last
        if last is not None and last.path == above:
            again = self._again(last, bits)
            if again is not None:
                return again, name
        return self._descend(RelPath(above), bits), name

    def directory(self, path: RelPath, bits: int = READ) -> Directory:
        """The directory at `path` itself; `path` may be the root."""
        return self._descend(path, bits)

    def _descend(self, path: RelPath, bits: int) -> Directory:
        if not self._keep:
            return self._walk(path, bits)
        last = self._last
        if last is not None and last.path == path:
            again = self._again(last, bits)
            if again is not None:
                return again
        self.close()
        found = self._walk(path, bits)
        if found.fd is None or not found.is_readable:
            return found
        at, shared = os.fstat(found.fd), _Shared(found.fd)
        self._last = _Kept(path, shared, found.path, at.st_dev, at.st_ino)
        shared.users += 1
        return Directory(found.fd, found.path, shared=shared)

    def _again(self, last: _Kept, bits: int) -> Directory | None:
        """The kept directory, if its path still leads to it and its mode has `bits`."""
        try:
            at = os.lstat(last.where)
        except OSError:
            return None
        if at.st_ino != last.inode or at.st_dev != last.device:
            return None
        if self._opener is not None and at.st_mode & bits != bits:
            return None
        last.shared.users += 1
        return Directory(last.shared.fd, last.where, shared=last.shared)

    def _walk(self, path: RelPath, bits: int) -> Directory:
        root = self._root
        here = root.again() if isinstance(root, Directory) else Directory.open_root(root)
        parts = path.split(b"/") if path else []
        straight = here.descendant(parts[:-1]) if len(parts) > _MANY_COMPONENTS else None
        passed = 0 if straight is None else len(parts) - 1
        if straight is not None:
            here.close()
            here = straight
        try:
            for count, part in enumerate(parts[passed:], start=passed + 1):
                if self._opener is not None:
                    at = RelPath(b"/".join(parts[:count]))
                    self._opener(here, part, at, bits if count == len(parts) else SEARCH)
                below = here.child(part)
                here.close()
                here = below
        except BaseException:
            here.close()
            raise
        return here
