"""Reading one entry of a directory: its content, symlink target and attributes, as a cache entry.

Only regular files are ever opened, and checked again after the open: another process may have
replaced the entry since the listing.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from substrate.model import BlobWriter
from substrate.system import clock
from substrate.system.files import read_xattrs
from substrate.workspace.paths.nofollow_listing import ListedDirectory, RawEntry
from substrate.workspace.scan import Entry, Xattrs

_SECOND_NS = 10**9
_RACY_WINDOW_NS = 100 * 10**6
_COARSE_RACY_WINDOW_NS = 2 * _SECOND_NS
_CHUNK_BYTES = 1 << 20


class KnownBlob(NamedTuple):
    """A file that the user's git index vouches for: with this stat it has this content.

    The code that creates these leaves out entries that git would call racy (mtime not older than
    the index) and blobs that are not byte for byte the file (filters, line endings).
    """

    oid: bytes
    git_mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int


class KindChangedError(Exception):
    """An entry of another kind has taken the name since it was listed: list again."""


class TooLargeError(Exception):
    """The file is over the size cap, perhaps only since we began to read it."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


def is_racy(mtime_ns: int, ctime_ns: int, now_ns: int) -> bool:
    """Whether a later write could leave the very same times, seen from the moment of reading.

        ctime                    now            the clock that stamps files ticks every
          |<------ 100 ms ------->|             1-10 ms; on file systems that keep whole
          `- not older: racy                    seconds, or two, only every 2 s

    ctime decides where it means "changed", because programs cannot set it. mtime is for systems
    where ctime is the creation time; an mtime far in the future says nothing.
    """
    if ctime_ns > now_ns - _window(ctime_ns):
        return True
    return now_ns - _window(mtime_ns) < mtime_ns <= now_ns + _COARSE_RACY_WINDOW_NS


def settled_before_ns(now_ns: int) -> int:
    """Times older than this are not racy on any file system."""
    return now_ns - _COARSE_RACY_WINDOW_NS


def _window(stamp_ns: int) -> int:
    return _COARSE_RACY_WINDOW_NS if stamp_ns % _SECOND_NS == 0 else _RACY_WINDOW_NS


def has_content(mode: int) -> bool:
    """Whether it is a file or a symlink, not a FIFO, socket or device."""
    return stat.S_IFMT(mode) in (stat.S_IFREG, stat.S_IFLNK)


def read_entry(
    directory: ListedDirectory, raw: RawEntry, size_cap_bytes: int
) -> tuple[Entry, bytes]:
    """The present entry at ``raw``'s name, still without its blob id, and its content.

    Never called for directories. Raises `KindChangedError`, `TooLargeError`, or `OSError` if it
    cannot be read. The caller stores the content, so that a full disk is not taken for an
    unreadable file.
    """
    name, mode = raw[0], raw[1]
    if stat.S_ISREG(mode):
        return _read_file(directory, name, size_cap_bytes)
    now_ns = clock.now_ns()
    content = b""
    if stat.S_ISLNK(mode):
        try:
            content = directory.read_link(name)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise KindChangedError from error
            raise
    racy = is_racy(raw[3], raw[4], now_ns)
    return Entry(raw[1:], racy=racy), content


def stored(entry: Entry, content: bytes, blobs: BlobWriter) -> Entry:
    """Store the content and return the entry with its blob id; special files have no content."""
    if not has_content(entry.stat[0]):
        return entry
    return entry._replace(oid=blobs.add_blob(content))


def known_entry(directory: ListedDirectory, raw: RawEntry, known: KnownBlob) -> Entry | None:
    """The entry as the git index has it, if the stat leaves no doubt; `None`: read the file."""
    name, mode, size, mtime_ns, ctime_ns, ino = raw
    if stat.S_IFMT(mode) != stat.S_IFMT(known.git_mode):
        return None
    if (size ^ known.size | ino ^ known.ino) & 0xFFFFFFFF:
        return None
    if not (_same_time(mtime_ns, known.mtime_ns) and _same_time(ctime_ns, known.ctime_ns)):
        return None
    xattrs = directory.xattrs_of(name) if stat.S_ISREG(mode) else ()
    racy = is_racy(mtime_ns, ctime_ns, clock.now_ns())
    return Entry(raw[1:], known.oid, xattrs, racy)


def _same_time(ours_ns: int, theirs_ns: int) -> bool:
    """Whether the times are equal; the index keeps only 32 bits of the seconds."""
    our_seconds, our_rest = divmod(ours_ns, _SECOND_NS)
    their_seconds, their_rest = divmod(theirs_ns, _SECOND_NS)
    return our_rest == their_rest and not (our_seconds ^ their_seconds) & 0xFFFFFFFF


def _read_file(directory: ListedDirectory, name: str, cap: int) -> tuple[Entry, bytes]:
    try:
        fd = directory.open_file(name)
    except OSError as error:
        # Now a symlink (ELOOP), or a socket or a device without a driver (ENXIO).
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise KindChangedError from error
        raise
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise KindChangedError
        now_ns = clock.now_ns()
        data = _content(fd, before, cap)
        xattrs = read_xattrs(fd)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    racy = is_racy(before.st_mtime_ns, before.st_ctime_ns, now_ns)
    racy = racy or len(data) != after.st_size or _stamp(before) != _stamp(after)
    return _file_entry(before, xattrs, racy), data


def _content(fd: int, info: os.stat_result, cap: int) -> bytes:
    """All of the file; one system call for most files."""
    if info.st_size > cap:
        raise TooLargeError(_file_entry(info, (), False))
    data = os.read(fd, min(info.st_size, _CHUNK_BYTES) + 1)
    if len(data) == info.st_size <= _CHUNK_BYTES:
        return data  # one byte more was requested: this is the end
    parts = [data]
    size = len(data)
    while data:
        data = os.read(fd, _CHUNK_BYTES)
        parts.append(data)
        size += len(data)
        if size > cap:
            raise TooLargeError(_file_entry(os.fstat(fd), (), True))
    return b"".join(parts)


def _stamp(info: os.stat_result) -> tuple[int, int, int, int]:
    return (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _file_entry(info: os.stat_result, xattrs: Xattrs, racy: bool) -> Entry:
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return Entry((info.st_mode, info.st_size, *times, info.st_ino), b"", xattrs, racy)
