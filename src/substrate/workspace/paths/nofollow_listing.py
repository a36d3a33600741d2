"""Listing directories and reaching into them without ever following a link.

Where the system has ``openat`` every directory is held by a descriptor. A directory may be
opened by its whole path first, which is quick but may be led astray by a link that somebody
puts in the way; what such a listing says is only believed if the directory is the very one
(inode) that the record is about. Everything else walks down name by name.
"""

from __future__ import annotations

import errno
import hashlib
import marshal
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from substrate.system.xattrs import read_user_xattrs
from substrate.workspace.stat_cache import MARSHAL_VERSION, UNSIGNED, Xattrs

#: A name and its `Stat`, flat because the hot loop makes one for every file there is. The size
#: of a directory is 1 where another file system is mounted.
#: A name that could not be looked at has mode `UNKNOWN` and the errno as its size.
RawEntry = tuple[str, int, int, int, int, int]
#: A directory's own mode, ctime_ns, ino, and whether it lies on another file system.
OwnStat = tuple[int, int, int, bool]
UNKNOWN = -1
Look = Callable[[str], os.stat_result]

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
#: O_NONBLOCK: what was a file a moment ago may be a FIFO now, and must not hang us.
_FILE = os.O_RDONLY | _FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FILE |= getattr(os, "O_NOCTTY", 0)

HAS_DESCRIPTORS = (
    os.open in os.supports_dir_fd
    and os.stat in os.supports_dir_fd
    and os.readlink in os.supports_dir_fd
    and os.listdir in os.supports_fd
    and hasattr(os, "O_DIRECTORY")
    and hasattr(os, "O_NOFOLLOW")
)


class Listing(NamedTuple):
    """One directory as it was found."""

    #: A digest of all that follows; empty if some name could not be looked at.
    signature: bytes
    own: OwnStat
    entries: list[RawEntry]


class Tree:
    """The workspace's directories. Close it when done."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        # Links above the workspace are the user's business: the root itself may be one.
        flags = _DIRECTORY & ~getattr(os, "O_NOFOLLOW", 0)
        self._fd = os.open(self.root, flags) if HAS_DESCRIPTORS else -1
        self.device = os.stat(self.root if self._fd < 0 else self._fd).st_dev

    def __enter__(self) -> Tree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def quick_listing(self, path: str) -> Listing | None:
        """List by the whole path; `None` if that fails. Believe only an expected signature."""
        try:
            with self.enter(path) if self._fd < 0 else self.enter_by_path(path) as directory:
                return directory.listing()
        except OSError:
            return None

    def enter_by_path(self, path: str) -> DescriptorDirectory:
        """Open the whole path at once: a link on the way may have led elsewhere.

        Where there are no descriptors (`HAS_DESCRIPTORS`) this is an `OSError`.
        """
        if self._fd < 0:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), path)
        return DescriptorDirectory(os.open(path or ".", _DIRECTORY, dir_fd=self._fd), self.device)

    def enter(self, path: str) -> Directory:
        """Walk down to `path` name by name. `OSError` if a link or anything else is in the way."""
        if self._fd < 0:
            return PlainDirectory(_plain_path(self.root, path), self.device)
        fd = os.dup(self._fd)
        for name in path.split("/") if path else ():
            above = fd
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
        return DescriptorDirectory(fd, self.device)


class Directory:
    """One directory that was reached safely; a context manager."""

    #: The file system of the workspace's root.
    device: int

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError

    def own(self) -> OwnStat:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError

    def listing(self) -> Listing:
        raise NotImplementedError

    def lstat(self, name: str) -> os.stat_result:
        raise NotImplementedError

    def open_file(self, name: str) -> int:
        """A descriptor for reading; it may turn out to be anything: look with `fstat`."""
        raise NotImplementedError

    def read_link(self, name: str) -> bytes:
        raise NotImplementedError

    def xattrs(self) -> Xattrs:
        """Of the directory itself."""
        raise NotImplementedError

    def xattrs_of(self, name: str) -> Xattrs:
        """Of a file or directory in it, without reading that."""
        raise NotImplementedError

    def holds_system_files(self, name: str) -> bool:
        """Whether the directory `name`, a mount point, shows the system itself, as /proc does.

        Such files are no one's work, and reading some of them takes for ever.
        """
        return False


class DescriptorDirectory(Directory):
    def __init__(self, fd: int, device: int) -> None:
        self.fd = fd
        self.device = device

    def close(self) -> None:
        os.close(self.fd)

    def own(self) -> OwnStat:
        return _own(os.fstat(self.fd), self.device)

    def names(self) -> list[str]:
        return os.listdir(self.fd)

    def listing(self) -> Listing:
        return _list_descriptor(self.fd, self.device)

    def listing_from_within(self) -> Listing:
        """The same, quicker, by going there; for a process that may leave its directory.

        It may be `UNSIGNED`.
        """
        os.fchdir(self.fd)
        own = _own(os.fstat(self.fd), self.device)
        names = os.listdir(self.fd)
        try:
            entries = [
                (
                    name,
                    info.st_mode,
                    info.st_size,
                    info.st_mtime_ns,
                    info.st_ctime_ns,
                    info.st_ino,
                )
                for name, info in zip(names, map(os.lstat, names), strict=True)
            ]
            modes = [entry[1] & 0o170000 for entry in entries]
            if stat.S_IFDIR in modes:
                entries = [
                    raw_entry(entry[0], os.lstat(entry[0]), self.device)
                    if mode == stat.S_IFDIR
                    else entry
                    for mode, entry in zip(modes, entries, strict=True)
                ]
        except OSError:
            return self.listing()
        return Listing(UNSIGNED, own, entries)

    def lstat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def open_file(self, name: str) -> int:
        return os.open(name, _FILE, dir_fd=self.fd)

    def read_link(self, name: str) -> bytes:
        return os.readlink(os.fsencode(name), dir_fd=self.fd)

    def xattrs(self) -> Xattrs:
        return read_user_xattrs(self.fd)

    def xattrs_of(self, name: str) -> Xattrs:
        # There is no listxattrat; through /proc it costs one system call instead of three.
        try:
            return read_user_xattrs(f"/proc/self/fd/{self.fd}/{name}")
        except FileNotFoundError:
            fd = self.open_file(name)
        try:
            return read_user_xattrs(fd)
        finally:
            os.close(fd)

    def holds_system_files(self, name: str) -> bool:
        fd = os.open(name, _DIRECTORY, dir_fd=self.fd)
        try:
            return os.fstatvfs(fd).f_blocks == 0
        finally:
            os.close(fd)


class PlainDirectory(Directory):
    """By path, where the system has no ``openat`` (Windows)."""

    def __init__(self, path: str, device: int) -> None:
        self._path = path
        self.device = device

    def close(self) -> None:
        pass

    def own(self) -> OwnStat:
        return _own(os.lstat(self._path), self.device)

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def listing(self) -> Listing:
        own = self.own()
        return _listing(own, *_look_at_each(self.names(), self.lstat, self.device))

    def lstat(self, name: str) -> os.stat_result:
        return os.lstat(os.path.join(self._path, name))

    def open_file(self, name: str) -> int:
        return os.open(os.path.join(self._path, name), _FILE)

    def read_link(self, name: str) -> bytes:
        return os.fsencode(os.readlink(os.path.join(self._path, name)))

    def xattrs(self) -> Xattrs:
        return read_user_xattrs(self._path)

    def xattrs_of(self, name: str) -> Xattrs:
        return read_user_xattrs(os.path.join(self._path, name))


def raw_entry(name: str, info: os.stat_result, device: int) -> RawEntry:
    """The entry as a listing has it."""
    if is_real_directory(info):
        return (name, stat.S_IFDIR, int(info.st_dev != device), 0, 0, info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return (name, UNKNOWN, errno.ELOOP, 0, 0, 0)  # a junction
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return (name, info.st_mode, info.st_size, *times, info.st_ino)


def is_real_directory(info: os.stat_result) -> bool:
    """A directory, and not a Windows junction, which leads elsewhere as a link does."""
    return stat.S_ISDIR(info.st_mode) and not getattr(info, "st_reparse_tag", 0)


def _plain_path(root: str, path: str) -> str:
    here = root
    for name in path.split("/") if path else ():
        here = os.path.join(here, name)
        if not is_real_directory(os.lstat(here)):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), here)
    return here


def _own(info: os.stat_result, device: int) -> OwnStat:
    return (info.st_mode, info.st_ctime_ns, info.st_ino, info.st_dev != device)


def _list_descriptor(fd: int, device: int) -> Listing:
    """The hot loop: one `stat` a name, and nothing else that can be helped."""
    own = _own(os.fstat(fd), device)
    names = os.listdir(fd)
    look = os.stat
    entries: list[RawEntry] = []
    add = entries.append
    try:
        for name in names:
            info = look(name, dir_fd=fd, follow_symlinks=False)
            mode = info.st_mode
            if mode & 0o170000 == 0o040000:
                add((name, 0o040000, 0 if info.st_dev == device else 1, 0, 0, info.st_ino))
            else:
                add(
                    (
                        name,
                        mode,
                        info.st_size,
                        info.st_mtime_ns,
                        info.st_ctime_ns,
                        info.st_ino,
                    )
                )
    except OSError:
        # Somebody removes files under our eyes, or may list this directory but not look in.
        def look_safely(name: str) -> os.stat_result:
            return look(name, dir_fd=fd, follow_symlinks=False)

        return _listing(own, *_look_at_each(names, look_safely, device))
    return _listing(own, entries, True)


def _look_at_each(names: list[str], look: Look, device: int) -> tuple[list[RawEntry], bool]:
    """`_list_descriptor` for difficult directories: no name's trouble is another's."""
    entries: list[RawEntry] = []
    complete = True
    for name in names:
        try:
            info = look(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            entries.append((name, UNKNOWN, error.errno or errno.EIO, 0, 0, 0))
            complete = False
            continue
        raw = raw_entry(name, info, device)
        complete = complete and raw[1] != UNKNOWN
        entries.append(raw)
    return entries, complete


def _listing(own: OwnStat, entries: list[RawEntry], complete: bool) -> Listing:
    if not complete:
        return Listing(b"", own, entries)
    return Listing(_signature(own, entries), own, entries)


def signature_of(listing: Listing) -> bytes:
    """Of one that was left unsigned, too."""
    if listing.signature != UNSIGNED:
        return listing.signature
    return _signature(listing.own, listing.entries)


def _signature(own: OwnStat, entries: list[RawEntry]) -> bytes:
    return hashlib.sha256(marshal.dumps((own, entries), MARSHAL_VERSION)).digest()
