"""The present state of a path, as a node that can be compared with a recorded one."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node
from substrate.system import now_ns
from substrate.system.files import Xattrs, read_xattrs
from substrate.workspace.paths.entry_reader import is_racy
from substrate.workspace.paths.nofollow_path import Directory
from substrate.workspace.paths.owner_access import READ, with_owner_bits

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]
_CAN_LEASE = hasattr(fcntl, "F_SETLEASE")
_SET_LEASE, _SET_SIGNAL = getattr(fcntl, "F_SETLEASE", 0), getattr(fcntl, "F_SETSIG", 0)
_READ_LEASE, _WRITE_LEASE, _NO_LEASE = (
    getattr(fcntl, name, 0) for name in ("F_RDLCK", "F_WRLCK", "F_UNLCK")
)

_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.CHAR_DEVICE,
    stat.S_IFBLK: Kind.BLOCK_DEVICE,
}
#: O_NONBLOCK: if a FIFO takes the name, the open must not wait for a writer.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_CHUNK_BYTES = 1 << 20
_HAS_PREAD = hasattr(os, "pread")
_ATTEMPTS = 5


class Seen(NamedTuple):
    """A node and the stat it was read under; no stat if nothing is there."""

    node: Node
    stat: os.stat_result | None
    #: Read so long after its last change that any later change shows in its times.
    is_settled: bool = False

    def same_inode_untouched(self, now: os.stat_result) -> bool:
        """Whether `now` shows the very file seen before, unchanged since.

        Good enough to skip a second reading *before* an exchange, because the exchanged entry is
        checked again; to remove it, it must also have been settled.
        """
        then = self.stat
        return then is not None and _signature(then) == _signature(now)

    def same_but_moved(self, now: os.stat_result) -> bool:
        """The same after a rename, which itself changes a file's ctime.

        Not good enough to remove it: a file that was moved aside is read before that.
        """
        then = self.stat
        return self.is_settled and then is not None and _signature(then)[:5] == _signature(now)[:5]


#: Nothing is there.
NOT_THERE = Seen(ABSENT, None)

#: A file that was seen, as it passes between processes: content id, attributes, whether it is
#: settled; mode, inode, device, links, owner, group, size; access, modification, change in ns.
SeenRow = tuple[bytes, Xattrs, bool, tuple[int, ...], tuple[int, int, int]]
_SECOND_NS = 10**9


def as_row(seen: Seen) -> SeenRow | None:
    """None unless it is a file that was read."""
    node, at, is_settled = seen
    if at is None or node.kind is not Kind.FILE or not node.oid:
        return None
    plain = (at.st_mode, at.st_ino, at.st_dev, at.st_nlink, at.st_uid, at.st_gid, at.st_size)
    times = (at.st_atime_ns, at.st_mtime_ns, at.st_ctime_ns)
    return node.oid, node.xattrs, is_settled, plain, times


def from_row(row: SeenRow) -> Seen:
    oid, xattrs, is_settled, plain, (accessed, modified, changed) = row
    seconds = (accessed // _SECOND_NS, modified // _SECOND_NS, changed // _SECOND_NS)
    exact = {"st_atime_ns": accessed, "st_mtime_ns": modified, "st_ctime_ns": changed}
    at = os.stat_result((*plain, *seconds), exact)
    return Seen(Node(Kind.FILE, plain[0] & 0o7777, oid, xattrs), at, is_settled)


def _signature(at: os.stat_result) -> tuple[int, ...]:
    return at.st_dev, at.st_ino, at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns


def kind_of(at: os.stat_result) -> Kind:
    return _KINDS[stat.S_IFMT(at.st_mode)]


def look(directory: Directory, name: bytes, most_bytes: int | None = None) -> Seen:
    """Read the entry at `name`: kind, mode, content hash, attributes.

    Never follows a symlink, never waits. A file that keeps changing while it is read comes back
    with an empty content id, which equals no recorded state. A file of more than `most_bytes` is
    not read: see `stat_id`.
    """
    last: os.stat_result | None = None
    for _ in range(_ATTEMPTS):
        try:
            last = directory.lstat(name)
        except FileNotFoundError:
            return NOT_THERE
        if stat.S_ISREG(last.st_mode):
            seen = _look_at_file(directory, name, most_bytes)
        else:
            seen = _look_at_other(directory, name, last)
        if seen is not None:
            return seen
    assert last is not None
    return Seen(Node(kind_of(last), stat.S_IMODE(last.st_mode)), last)


def blob_id(data: bytes) -> bytes:
    """The id git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


def stat_id(at: os.stat_result) -> bytes:
    """Instead of a content id, for a file too large to be kept: a hash of its inode, size and time.

    It stays the same if the file is moved within its file system; a copy has another one.
    """
    said = b"stat %d %d %d" % (at.st_ino, at.st_size, at.st_mtime_ns)
    return hashlib.sha1(said, usedforsecurity=False).digest()


def _look_at_other(directory: Directory, name: bytes, at: os.stat_result) -> Seen | None:
    kind, mode = kind_of(at), stat.S_IMODE(at.st_mode)
    if kind is Kind.SYMLINK:
        return _look_at_link(directory, name, at)
    if kind is Kind.DIRECTORY:
        return Seen(Node(kind, mode, b"", _directory_xattrs(directory, name)), at)
    return Seen(Node(kind, mode), at)


def _look_at_link(directory: Directory, name: bytes, at: os.stat_result) -> Seen | None:
    try:
        target = directory.readlink(name)
    except OSError:
        return None  # no longer a symlink: look again
    return Seen(Node(Kind.SYMLINK, 0, blob_id(target)), at, _is_settled(at, now_ns()))


def _directory_xattrs(directory: Directory, name: bytes) -> Xattrs:
    try:
        with directory.child(name) as child:
            return read_xattrs(child.itself()) if child.is_readable else ()
    except OSError:
        return ()  # gone, or not readable: the mode shows the difference


def _look_at_file(directory: Directory, name: bytes, most_bytes: int | None) -> Seen | None:
    try:
        fd = open_to_read(directory, name)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        return read_open_file(fd, most_bytes)
    finally:
        os.close(fd)


def read_open_file(fd: int, most_bytes: int | None = None) -> Seen | None:
    """The node of an open file; None if it is not a regular file, or changed while it was read."""
    started = now_ns()
    before = os.fstat(fd)
    if not stat.S_ISREG(before.st_mode):
        return None
    xattrs, before = _attributes(fd, before)
    is_read = most_bytes is None or before.st_size <= most_bytes
    oid = _hash(fd, before.st_size) if is_read else stat_id(before)
    after = os.fstat(fd)
    # The same descriptor, and every change to a file changes its ctime.
    if oid is None or (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (
        after.st_size, after.st_mtime_ns, after.st_ctime_ns,
    ):  # fmt: skip
        return None
    settled = not is_racy(after.st_mtime_ns, after.st_ctime_ns, started)
    return Seen(Node(Kind.FILE, after.st_mode & 0o7777, oid, xattrs), after, settled)


def _attributes(fd: int, at: os.stat_result) -> tuple[Xattrs, os.stat_result]:
    """The attributes of an open file, and its stat afterwards: reading them may need a chmod."""
    try:
        return read_xattrs(fd), at
    except PermissionError:
        if at.st_mode & READ or not hasattr(os, "fchmod"):
            raise
    mode = stat.S_IMODE(at.st_mode)
    os.fchmod(fd, mode | READ)
    try:
        found = read_xattrs(fd)
    finally:
        os.fchmod(fd, mode)
    return found, os.fstat(fd)


def _is_settled(at: os.stat_result, when_ns: int) -> bool:
    return not is_racy(at.st_mtime_ns, at.st_ctime_ns, when_ns)


def _hash(fd: int, size: int) -> bytes | None:
    if size < _CHUNK_BYTES and _HAS_PREAD:
        data = os.pread(fd, size + 1, 0)  # one byte more: whether that is the end
        if len(data) == size:
            return blob_id(data)
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    os.lseek(fd, 0, os.SEEK_SET)
    left = size
    while chunk := os.read(fd, _CHUNK_BYTES):
        digest.update(chunk)
        left -= len(chunk)
    return digest.digest() if left == 0 else None


def open_to_read(directory: Directory, name: bytes) -> int:
    """Open a regular file for reading, even our own with mode 0000 (its mode is restored)."""
    try:
        return directory.open(name, _READ)
    except PermissionError:
        if not stat.S_ISREG(directory.lstat(name).st_mode):
            raise
    with with_owner_bits(directory, name, READ) as itself:
        return os.open(itself, _READ)


# --------------------------------------------------- which other processes have it open?


def nobody_writes(fd: int) -> bool | None:
    """Whether no process has this file open for writing; None if the system cannot say.

    The kernel grants a read lease exactly then. `fd` must be read-only. A file that has left the
    tree and has no other link stays unwritten from then on: no path leads to it.
    """
    found = _lease(fd, _READ_LEASE) if _CAN_LEASE else None
    if found:
        let_others_in(fd)
    return found


def shut_out_others(fd: int) -> bool | None:
    """Block every other open of this file until `fd` is closed; False: it is open elsewhere."""
    return _lease(fd, _WRITE_LEASE) if _CAN_LEASE else None


def let_others_in(fd: int) -> None:
    """The end of `shut_out_others`, for a descriptor that stays open for a while."""
    if _CAN_LEASE:
        try:
            fcntl.fcntl(fd, _SET_LEASE, _NO_LEASE)
        except OSError:
            pass  # there was none


def _lease(fd: int, what: int) -> bool | None:
    try:
        # The default, SIGIO, would end the process if another process opens the file during the
        # lease.
        fcntl.fcntl(fd, _SET_SIGNAL, signal.SIGURG)
        fcntl.fcntl(fd, _SET_LEASE, what)
    except OSError as error:
        return False if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK) else None
    return True
