"""What the last scan saw, so that the next one reads only what changed since.

One record per directory. Its *signature* is a digest over the directory's own stat and the stat of
every name in it; a directory with the same signature is unchanged. An empty signature never
matches. The *payload* holds the entries and is unpacked only when needed.

On disk (mode 0600, one writer at a time, under the history lock):

    magic, then segments:  length (8) | crc32 (4) | marshalled body
    body:   (describes, rules, boot id, saved at, removed directories, {path: record})

The first segment is complete, later ones hold the directories that changed. A segment torn by a
kill fails its checksum, and the file is valid up to there, with the `describes` of the last good
segment. The file is never synced: losing it costs one full read of the workspace.

After a power cut a file may carry the times of a write whose bytes never reached the disk. So after
a reboot (another boot id), files changed less than two minutes before the cache was saved, or
later, are read again (`distrust_after_ns`): the kernel had written everything older by then.
"""

from __future__ import annotations

import marshal
import os
import stat
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath, join, split
from substrate.system import clock
from substrate.system.process import boot_id

_FORMAT = 2
#: Only a Python that marshals and decodes file names in the same way can read the records.
_MAGIC = b"substrate-stat-cache %d %d %s\n" % (
    _FORMAT,
    marshal.version,
    sys.getfilesystemencoding().encode(),
)
_HEAD = struct.Struct("<QI")
#: Version 2 writes no back references: those depend on reference counts, and signatures of the same
#: entries would differ.
MARSHAL_VERSION = 2
_UNWRITTEN_WINDOW_NS = 120 * 10**9
_REWRITE_FLOOR_BYTES = 64 << 10

#: Instead of a signature that is not computed yet: the directory was listed, but its record has no
#: payload, and is not saved to a file.
UNSIGNED = b"unsigned"

Xattrs = tuple[tuple[bytes, bytes], ...]
#: mode, size, mtime_ns, ctime_ns, ino. For directories, mode is the kind alone, size and times are
#: 0: a directory's own mode and content belong to its own record.
Stat = tuple[int, int, int, int, int]


class Entry(NamedTuple):
    """One name in a directory."""

    stat: Stat
    oid: bytes = b""
    xattrs: Xattrs = ()
    #: The file may have changed without a change of its stat: read it again next time.
    racy: bool = False
    #: Why it is excluded; empty if it is recorded.
    reason: str = ""

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.stat[0])

    @property
    def newest_ns(self) -> int:
        return max(self.stat[2], self.stat[3])


class CacheDamagedError(Exception):
    """A record passed its checksum but is not valid: the scan starts again without a cache."""


class Payload(NamedTuple):
    """A directory in full: its own stat and attributes, and its entries by name."""

    mode: int
    ctime_ns: int
    ino: int
    #: Its times were too recent to be trusted when the attributes were read.
    racy: bool
    xattrs: Xattrs
    entries: dict[str, Entry]

    def pack(self) -> bytes:
        entries = {name: tuple(entry) for name, entry in self.entries.items()}
        return pack_payload(*self[:-1], entries)


def pack_payload(
    mode: int,
    ctime_ns: int,
    ino: int,
    racy: bool,
    xattrs: Xattrs,
    entries: Mapping[str, tuple[object, ...]],
) -> bytes:
    """A `Payload` in the form of a record; the entries are plain tuples here."""
    packed = (mode, ctime_ns, ino, racy, xattrs, entries)
    return marshal.dumps(packed, MARSHAL_VERSION)  # type: ignore[arg-type]


class DirRecord(NamedTuple):
    """One directory in the cache. Names are text from `os.fsdecode`."""

    signature: bytes
    #: The subdirectories that are recorded.
    subdirs: list[str]
    #: Excluded names with their reasons.
    excluded: dict[str, str]
    #: FIFOs, sockets, devices.
    specials: list[str]
    #: How many entries are recorded (without the excluded ones).
    entry_count: int
    #: The newest time of any entry or of the directory itself.
    newest_ns: int
    payload: bytes

    def open(self) -> Payload:
        try:
            mode, ctime_ns, ino, racy, xattrs, packed = marshal.loads(self.payload)
            entries = {name: Entry(*entry) for name, entry in packed.items()}
            return Payload(mode, ctime_ns, ino, racy, xattrs, entries)
        except (ValueError, TypeError, EOFError, AttributeError) as error:
            raise CacheDamagedError from error


class StatCache:
    """All directory records, by their path (text, ``""`` is the root)."""

    def __init__(self, reason: str = "") -> None:
        self.dirs: dict[str, DirRecord] = {}
        #: Why the cache is empty, or which part of the file was not used; empty if all is well.
        self.reason = reason
        #: The tag the state was saved under; empty if it was never saved.
        self.describes = b""
        #: Fingerprint of the exclusion rules the records were made with.
        self.rules = ""
        #: Entries changed after this time are read again although their stat is the same.
        self.distrust_after_ns = sys.maxsize
        self._changed: set[str] = set()
        self._saved_rules = ""
        self._saved_in: tuple[str, int] | None = None
        self._file: _FileState | None = None

    def put(self, path: str, record: DirRecord) -> None:
        self.dirs[path] = record
        self._changed.add(path)

    def drop(self, path: str) -> None:
        self.dirs.pop(path, None)
        self._changed.add(path)

    def clear(self, reason: str) -> None:
        """Forget everything, for `reason`."""
        self.__init__(reason)  # type: ignore[misc]

    def trust(self) -> None:
        """A scan has checked everything that `distrust_after_ns` put in doubt."""
        self.distrust_after_ns = sys.maxsize
        self._saved_in = None

    @classmethod
    def load(cls, path: Path) -> StatCache:
        """The cache in `path`; an empty one, with the reason, if it cannot be used."""
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
                info = os.fstat(file.fileno())
        except FileNotFoundError:
            return cls("there is no cache yet")
        except OSError as error:
            return cls(f"the cache cannot be read: {error.strerror}")
        return _parse(data, info)

    def save(self, path: Path, *, describes: bytes) -> None:
        """Write what changed since `load` or the last `save`, under the tag `describes`.

        Call it only when the state that `describes` names is durable. Appends if little changed and
        no other process wrote the file; otherwise writes the whole file again.
        """
        if not self._changed and describes == self.describes and self.rules == self._saved_rules:
            return
        self.describes = describes
        state = self._file
        if state is None or not _append(path, state, self._segment(self._changed)):
            self._file = _write_anew(path, self._segment(None))
        self._changed.clear()
        self._saved_rules = self.rules

    def _segment(self, changed: set[str] | None) -> tuple[bytes, bytes]:
        if changed is None:
            removed: list[str] = []
            dirs = {path: tuple(record) for path, record in self.dirs.items()}
        else:
            removed = [path for path in changed if path not in self.dirs]
            dirs = {path: tuple(self.dirs[path]) for path in changed if path in self.dirs}
        # Doubts that no scan has settled yet must be saved as well.
        boot, saved_ns = self._saved_in or (boot_id(), clock.now_ns())
        body = marshal.dumps(
            (self.describes, self.rules, boot, saved_ns, removed, dirs), MARSHAL_VERSION
        )
        return _HEAD.pack(len(body), zlib.crc32(body)), body


class _FileState:
    """The file as we know it; if it is a different one by now, do not append to it."""

    def __init__(self, ino: int, size: int, base: int) -> None:
        self.ino = ino
        self.size = size
        self.base = base


def _parse(data: bytes, info: os.stat_result) -> StatCache:
    if not data.startswith(_MAGIC):
        return StatCache("the cache was written by another version")
    cache = StatCache()
    view = memoryview(data)
    at, base, newest_save = len(_MAGIC), 0, (boot_id(), 0)
    while at < len(data):
        body = _segment_body(view, at)
        if body is None:
            cache.reason = "the end of the cache file is torn"
            break
        try:
            describes, rules, boot, saved_ns, removed, dirs = marshal.loads(body)
            for gone in removed:
                cache.dirs.pop(gone, None)
            make = DirRecord._make
            cache.dirs.update((path, make(record)) for path, record in dirs.items())
        except (ValueError, TypeError, EOFError, AttributeError):
            return StatCache("the cache is damaged")
        cache.describes, cache.rules, newest_save = describes, rules, (boot, saved_ns)
        at += _HEAD.size + len(body)
        base = base or at
    if not base:
        return StatCache("the cache is damaged")
    # Do not append to a torn tail: a state of the wrong size makes `save` write the file again.
    cache._file = _FileState(info.st_ino, at, base)
    cache._saved_rules = cache.rules
    _distrust_after_reboot(cache, *newest_save)
    return cache


def _segment_body(view: memoryview, at: int) -> memoryview | None:
    if at + _HEAD.size > len(view):
        return None
    length, checksum = _HEAD.unpack_from(view, at)
    start = at + _HEAD.size
    if start + length > len(view) or zlib.crc32(view[start : start + length]) != checksum:
        return None
    return view[start : start + length]


def _distrust_after_reboot(cache: StatCache, boot: str, saved_ns: int) -> None:
    if boot and boot == boot_id():
        return
    cache._saved_in = (boot, saved_ns)
    cutoff = cache.distrust_after_ns = saved_ns - _UNWRITTEN_WINDOW_NS
    for path, record in cache.dirs.items():
        if record.newest_ns > cutoff:
            cache.dirs[path] = record._replace(signature=b"")


def _append(path: Path, state: _FileState, parts: tuple[bytes, bytes]) -> bool:
    segment = b"".join(parts)
    grown = state.size + len(segment) - state.base
    if grown > max(state.base // 2, _REWRITE_FLOOR_BYTES):
        return False
    flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(path, flags)
    except OSError:
        return False
    try:
        info = os.fstat(fd)
        if (info.st_ino, info.st_size) != (state.ino, state.size):
            return False
        written = os.write(fd, segment)
    except OSError:
        return False
    finally:
        os.close(fd)
    # A short write (disk full) leaves a torn tail: then the whole file is written again.
    state.size += written
    return written == len(segment)


def _write_anew(path: Path, parts: tuple[bytes, bytes]) -> _FileState:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(_MAGIC)
            for part in parts:  # not joined: the second holds a whole project's state
                file.write(part)
            file.flush()
            ino = os.fstat(file.fileno()).st_ino
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    size = len(_MAGIC) + sum(map(len, parts))
    return _FileState(ino, size, size)


# ------------------------------------------------------------------ the cached state as nodes

_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.CHAR_DEVICE,
    stat.S_IFBLK: Kind.BLOCK_DEVICE,
}


def kind_of(mode: int) -> Kind:
    """The kind of a stat mode; unknown kinds (doors, ports) count as sockets."""
    return _KINDS.get(stat.S_IFMT(mode), Kind.SOCKET)


def node_of(entry: Entry) -> Node:
    """The node of a recorded entry that is not a directory."""
    kind = kind_of(entry.stat[0])
    mode = 0 if kind is Kind.SYMLINK else stat.S_IMODE(entry.stat[0])
    return Node(kind, mode, entry.oid, entry.xattrs)


def directory_node(payload: Payload) -> Node:
    return Node(Kind.DIRECTORY, stat.S_IMODE(payload.mode), b"", payload.xattrs)


def cached_nodes(cache: StatCache) -> Iterator[tuple[RelPath, Node]]:
    """The whole cached state, parents before children, without excluded paths."""
    pending = [""] if "" in cache.dirs else []
    while pending:
        text = pending.pop()
        record = cache.dirs[text]
        payload = record.open()
        path = RelPath(os.fsencode(text))
        if text:
            yield path, directory_node(payload)
        for name, entry in payload.entries.items():
            if not entry.reason and not entry.is_dir:
                yield join(path, os.fsencode(name)), node_of(entry)
        pending += [f"{text}/{name}" if text else name for name in record.subdirs]


def cached_node(cache: StatCache, path: RelPath) -> Node:
    """The cached node at `path`; ABSENT if the cache does not know it."""
    own = cache.dirs.get(os.fsdecode(path))
    if own is not None:
        return directory_node(own.open()) if path else ABSENT
    above, name = split(path)
    record = cache.dirs.get(os.fsdecode(above))
    entry = record.open().entries.get(os.fsdecode(name)) if record is not None else None
    if entry is None or entry.reason or entry.is_dir:
        return ABSENT
    return node_of(entry)
