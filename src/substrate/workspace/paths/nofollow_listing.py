"""Listing directories, and reading what is in them, for a scan.

`nofollow_path` walks down to a directory; this lists it as fast as possible. A directory may be
opened by its whole path first, which is fast but may follow a symlink that another process puts in
the way; such a listing counts only if the directory is the very one (inode) that the record is
about.
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

from substrate.model import RelPath
from substrate.system.files import read_xattrs
from substrate.workspace.paths import nofollow_path
from substrate.workspace.paths.nofollow_path import Directory, Walker
from substrate.workspace.scan import MARSHAL_VERSION, UNSIGNED, Xattrs

#: A name and its `Stat`, flat because the hot loop makes one for every file. A directory has size 1
#: if another file system is mounted there. A name that could not be read has mode `UNKNOWN` and the
#: errno as its size.
RawEntry = tuple[str, int, int, int, int, int]
#: A directory's own mode, ctime_ns, ino, and whether it is on another file system.
OwnStat = tuple[int, int, int, bool]
UNKNOWN = -1
Look = Callable[[str], os.stat_result]

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
#: O_NONBLOCK: a file may have been replaced by a FIFO, which must not block us.
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class Listing(NamedTuple):
    """One directory as it was found."""

    #: A digest of the other fields; empty if some name could not be read.
    signature: bytes
    own: OwnStat
    entries: list[RawEntry]


class Tree:
    """The workspace's directories. Close it when done."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self._directory = Directory.open_root(root)
        self._walker = Walker(self._directory)
        self.device = os.stat(self._directory.itself()).st_dev

    def __enter__(self) -> Tree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._directory.close()

    def quick_listing(self, path: str) -> Listing | None:
        """List by the whole path; `None` if that fails. Trust only an expected signature."""
        has_descriptors = self._directory.fd is not None
        try:
            with self.enter_by_path(path) if has_descriptors else self.enter(path) as directory:
                return directory.listing()
        except OSError:
            return None

    def enter_by_path(self, path: str) -> ListedDirectory:
        """Open the whole path at once: a symlink on the way may have led elsewhere.

        `OSError` where the system has no descriptors of directories.
        """
        if self._directory.fd is None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), path)
        fd = os.open(path or ".", _DIRECTORY, dir_fd=self._directory.fd)
        return ListedDirectory(Directory(fd, b""), self.device)

    def enter(self, path: str) -> ListedDirectory:
        """Walk down to `path` name by name. `OSError` if a symlink or a file is in the way."""
        found = self._walker.directory(RelPath(os.fsencode(path)))
        if not found.is_readable:
            found.close()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return ListedDirectory(found, self.device)


class ListedDirectory:
    """One directory that was reached safely; a context manager. Names are text here."""

    def __init__(self, directory: Directory, device: int) -> None:
        self._directory = directory
        #: The file system of the workspace's root.
        self.device = device

    @property
    def fd(self) -> int:
        assert self._directory.fd is not None, "there are descriptors here"
        return self._directory.fd

    def __enter__(self) -> ListedDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._directory.close()

    def close(self) -> None:
        self._directory.close()

    def own(self) -> OwnStat:
        return _own(self._directory.own_stat(), self.device)

    def names(self) -> list[str]:
        return os.listdir(self._itself())

    def _itself(self) -> int | str:
        fd = self._directory.fd
        return os.fsdecode(self._directory.path) if fd is None else fd

    def listing(self) -> Listing:
        fd = self._directory.fd
        if fd is not None:
            return _list_descriptor(fd, self.device)
        own = self.own()
        return _listing(own, *_look_at_each(self.names(), self.lstat, self.device))

    def listing_from_within(self) -> Listing:
        """The same, faster, by changing to that directory; for a process that may do so.

        The signature may be `UNSIGNED`.
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
        return self._directory.lstat(os.fsencode(name))

    def open_file(self, name: str) -> int:
        """A descriptor for reading; the entry may be of any kind by now: check with `fstat`."""
        return self._directory.open(os.fsencode(name), _FILE)

    def read_link(self, name: str) -> bytes:
        return self._directory.readlink(os.fsencode(name))

    def xattrs(self) -> Xattrs:
        """The attributes of the directory itself."""
        return read_xattrs(self._itself())

    def xattrs_of(self, name: str) -> Xattrs:
        """The attributes of a file or directory in it, without reading its content."""
        if self._directory.fd is None:
            return read_xattrs(os.path.join(os.fsdecode(self._directory.path), name))
        # There is no listxattrat; going through /proc costs one system call instead of three.
        try:
            return read_xattrs(f"/proc/self/fd/{self._directory.fd}/{name}")
        except FileNotFoundError:
            fd = self.open_file(name)
        try:
            return read_xattrs(fd)
        finally:
            os.close(fd)

    def holds_system_files(self, name: str) -> bool:
        """Whether the directory `name`, a mount point, shows the system itself, as /proc does.

        Such files are not anyone's work, and reading some of them never ends.
        """
        if self._directory.fd is None:
            return False
        with self._directory.child(os.fsencode(name)) as below:
            return below.fd is not None and os.fstatvfs(below.fd).f_blocks == 0


def raw_entry(name: str, info: os.stat_result, device: int) -> RawEntry:
    """The entry in the form of a listing."""
    if nofollow_path.is_real_directory(info):
        return (name, stat.S_IFDIR, int(info.st_dev != device), 0, 0, info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return (name, UNKNOWN, errno.ELOOP, 0, 0, 0)  # a junction
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return (name, info.st_mode, info.st_size, *times, info.st_ino)


def _own(info: os.stat_result, device: int) -> OwnStat:
    return (info.st_mode, info.st_ctime_ns, info.st_ino, info.st_dev != device)


def _list_descriptor(fd: int, device: int) -> Listing:
    """The hot loop: one `stat` per name, and as little else as possible."""
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
        # Another process removes files right now, or we may list this directory but not search it.
        def look_safely(name: str) -> os.stat_result:
            return look(name, dir_fd=fd, follow_symlinks=False)

        return _listing(own, *_look_at_each(names, look_safely, device))
    return _listing(own, entries, True)


def _look_at_each(names: list[str], look: Look, device: int) -> tuple[list[RawEntry], bool]:
    """`_list_descriptor` for difficult directories: an error with one name affects no other."""
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
    """The signature, computed now if the listing was left unsigned."""
    if listing.signature != UNSIGNED:
        return listing.signature
    return _signature(listing.own, listing.entries)


def _signature(own: OwnStat, entries: list[RawEntry]) -> bytes:
    return hashlib.sha256(marshal.dumps((own, entries), MARSHAL_VERSION)).digest()
