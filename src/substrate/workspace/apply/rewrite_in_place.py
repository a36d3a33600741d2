"""Changing a file's bytes while keeping the inode, for readers and hard links that hold it.

The caller has both contents in its object store and the plan in its journal. A marker in the
scratch directory says that a rewrite began; a crash in the middle leaves a file in which each page
is old or new, which `resume` recognizes and finishes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from substrate.model import Kind, Node
from substrate.system.files import fsync_fd, read_xattrs, write_all
from substrate.workspace.apply.apply_context import (
    MARK,
    MARKS,
    Item,
    Mismatch,
    OnItem,
    Site,
    State,
    Step,
)
from substrate.workspace.apply.apply_metadata import set_attributes
from substrate.workspace.apply.apply_steps import swap
from substrate.workspace.apply.staging import PAGE_BYTES, read_verified
from substrate.workspace.paths import (
    SEARCH,
    Directory,
    blob_id,
    let_others_in,
    look,
    nobody_writes,
    open_to_read,
    read_open_file,
    shut_out_others,
)

#: From this many on, one file holds all the marks.
_SEVERAL = 16
_CHUNK_BYTES = 1 << 20
_WRITE = os.O_RDWR | getattr(os, "O_NONBLOCK", 0)
_HAS_PREAD, _HAS_PWRITE = hasattr(os, "pread"), hasattr(os, "pwrite")


def mark_all(site: Site, items: list[Item]) -> None:
    """Before the first of several rewrites: write all marks with one sync.

    A mark for a file that is not reached yet does no harm: that file is wholly old.
    """
    rewrites = [item for item in items if _will_be_rewritten(item)]
    if not rewrites:
        return
    if len(rewrites) < _SEVERAL:
        for item in rewrites:
            _mark(site, item)
    else:
        # Append to the marks of an earlier attempt, which must not be lost before we are done.
        fd = site.scratch.open(MARKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(fd, b"".join(b"%d\n" % item.number for item in rewrites))
            fsync_fd(fd)
        finally:
            os.close(fd)
    for item in rewrites:
        item.is_marked = True
    site.scratch.sync()


def _will_be_rewritten(item: Item) -> bool:
    return item.state is State.TODO and not item.unseen and item.is_rewrite


def rewrite(site: Site, item: Item, stage_late: Callable[[Item], None]) -> list[Step]:
    """Write the new bytes into the existing file.

    A file that may not be written to (mode, running program) is replaced instead.
    """
    parent, name = site.walker.parent_of(item.path, SEARCH)
    with parent:
        fd = _open_alone(parent, name)
        if fd >= 0:
            try:
                steps = _rewrite_open(site, item, fd)
            except BaseException:
                os.close(fd)
                raise
            let_others_in(fd)
            site.let_go(fd)
            return steps
    stage_late(item)
    return swap(site, item)


def _open_alone(parent: Directory, name: bytes) -> int:
    """Open the file and, where possible, block other processes from opening it.

    Then no other process can save between our check and our write. -1: we may not write to it.
    `Mismatch`: another process has it open for writing.
    """
    fd = _open(parent, name)
    if fd < 0 or shut_out_others(fd):
        return fd
    os.close(fd)
    _refuse_if_written_to(parent, name)
    fd = _open(parent, name)
    if fd >= 0:
        shut_out_others(fd)
    return fd


def _open(parent: Directory, name: bytes) -> int:
    try:
        return parent.open(name, _WRITE)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ETXTBSY):
            return -1
        raise Mismatch(look(parent, name).node, "went away in the last moment") from error


def _refuse_if_written_to(parent: Directory, name: bytes) -> None:
    try:
        fd = open_to_read(parent, name)
    except OSError:
        return
    try:
        if nobody_writes(fd) is False:
            raise Mismatch(look(parent, name).node, "another program has it open for writing")
    finally:
        os.close(fd)


def _rewrite_open(site: Site, item: Item, fd: int) -> list[Step]:
    new = read_verified(site, item.become.oid)
    if not item.is_marked:
        _mark(site, item)
        site.scratch.sync()
    at = os.fstat(fd)
    if not stat.S_ISREG(at.st_mode):
        raise Mismatch(Node(Kind.FILE), "changed while the operation was under way")
    old = _read(fd, at.st_size)
    found = Node(Kind.FILE, stat.S_IMODE(at.st_mode), blob_id(old), read_xattrs(fd))
    if found != item.seen.node:
        raise Mismatch(found, "changed while the operation was under way")
    # Other processes that already had the file open are not blocked, and reading takes time.
    now = os.fstat(fd)
    if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (
        at.st_size, at.st_mtime_ns, at.st_ctime_ns,
    ):  # fmt: skip
        raise Mismatch(found, "changed while the operation was under way")
    try:
        overwrite(fd, old, new, at)
        set_attributes(fd, found, item.become)
        _give_times(site, item, fd, at)
        if not site.is_synced_later(at.st_dev):
            os.fsync(fd)
    except BaseException:
        overwrite(fd, new, old)
        set_attributes(fd, item.become, found)
        raise
    return [Rewritten(item, old if item.torn else None)]


def _give_times(site: Site, item: Item, fd: int, at: os.stat_result) -> None:
    """Set the final times, now that nothing more changes the file."""
    wanted = site.times.get(item.path)
    if wanted is None or wanted.owner != (at.st_uid, at.st_gid):
        return
    try:
        os.utime(fd, ns=wanted.times)
    except OSError:
        return  # another user's file: the later pass that sets all times handles it
    site.timed.append(item.path)


def overwrite(fd: int, old: bytes, new: bytes, at: os.stat_result | None = None) -> None:
    """Reserve room first, so that a full disk shows while the old bytes are still intact.

    `at`: the stat of the file with its old content, if known: it may have the room already.
    """
    if len(new) > len(old) and hasattr(os, "posix_fallocate") and not _has_room(at, len(new)):
        try:
            os.posix_fallocate(fd, 0, len(new))
        except OSError as error:
            os.ftruncate(fd, len(old))
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
    # If bytes were only appended, do not write the rest again.
    start = len(old) if new.startswith(old) else 0
    _write_at(fd, start, new[start:] if start else new)
    if len(new) < len(old):
        _end_after(fd, len(old), len(new))


def _write_at(fd: int, start: int, data: bytes) -> None:
    done = os.pwrite(fd, data, start) if _HAS_PWRITE else 0
    if done < len(data):
        os.lseek(fd, start + done, os.SEEK_SET)
        write_all(fd, data[done:])


def _has_room(at: os.stat_result | None, size: int) -> bool:
    """Whether its allocated blocks are enough: most files do not fill their last one.

    Only within the last page: a kill between two pages must not leave a size that is neither the
    old one nor the new.
    """
    if at is None or at.st_size == 0 or at.st_blocks * 512 < size:
        return False
    return (size - 1) // PAGE_BYTES == (at.st_size - 1) // PAGE_BYTES


def _end_after(fd: int, old_size: int, new_size: int) -> None:
    """Cut off the rest of the old content, but nothing that was appended since."""
    size = os.fstat(fd).st_size
    added = b""
    if size > old_size and _HAS_PREAD:
        added = os.pread(fd, size - old_size, old_size)
    if added:
        _write_at(fd, new_size, added)
    if size != new_size + len(added):
        os.ftruncate(fd, new_size + len(added))


def _read(fd: int, size: int = 0) -> bytes:
    if 0 < size < _CHUNK_BYTES and _HAS_PREAD:
        data = os.pread(fd, size + 1, 0)  # one byte more: whether that is the end
        if len(data) == size:
            return data
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    while chunk := os.read(fd, _CHUNK_BYTES):
        parts.append(chunk)
    return b"".join(parts)


def _mark(site: Site, item: Item) -> None:
    os.close(site.scratch.open(item.scratch_name(MARK), os.O_WRONLY | os.O_CREAT))


class Rewritten(OnItem):
    def __init__(self, item: Item, torn: bytes | None) -> None:
        super().__init__(item)
        self._torn = torn

    def undo(self, site: Site) -> None:
        item = self.item
        old = read_verified(site, item.seen.node.oid) if self._torn is None else self._torn
        parent, name = site.walker.parent_of(item.path, SEARCH)
        with parent:
            fd = parent.open(name, os.O_RDWR)
            try:
                seen = read_open_file(fd)
                if seen is None or seen.node != item.become:
                    return  # written to since: that work stays
                overwrite(fd, _read(fd), old)
                set_attributes(fd, item.become, item.seen.node)
                os.fsync(fd)
            finally:
                os.close(fd)
