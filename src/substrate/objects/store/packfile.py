"""Read packs: find an object through its idx (version 2) and rebuild it.

Packs are read with ``pread``, not mapped: if another process truncates a mapped file, SIGBUS kills
this process, while a short read can be reported. Of a big idx only the ids with the same first
byte are read, so that finding an object does not depend on the size of the project.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator

from substrate.errors import DamagedStoreError
from substrate.objects.store.loose import HINT, check_id, damaged
from substrate.objects.store.pack_delta import BadDeltaError, apply_delta

_IDX_START = b"\xfftOc\x00\x00\x00\x02"
_TABLE = 8 + 1024
#: A smaller idx is read whole.
_BIG_IDX_BYTES = 128 << 10
_FIRST_READ_BYTES = 2048
_CHAIN_MAX = 4096
_KIND_NAMES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS_DELTA, _REF_DELTA = 6, 7

#: Finds the base of a REF_DELTA, which may be in another pack or loose.
BaseReader = Callable[[bytes], tuple[str, bytes]]
#: Up to this many ids are searched without bisection.
_FEW = 64
_ID = struct.Struct("20s")


class DamagedPackError(DamagedStoreError):
    """A pack or its idx is unusable as a whole; the rest of the store is still readable."""


class PackIndex:
    """One ``.idx`` file: sorted object ids and their offsets in the pack."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        #: All of a small idx; the beginning of a big one.
        self._data, self._size = self._load()
        #: For a big idx, the ids by first byte, as far as they were needed.
        self._buckets: dict[int, bytes] = {}
        self._check()

    def _load(self) -> tuple[bytes, int]:
        try:
            fd = _open_at_once(self.path)
        except (OSError, ValueError) as error:
            raise DamagedPackError(f"{self.path} cannot be read: {error}", hint=HINT) from error
        try:
            with open(fd, "rb", closefd=False) as file:
                size = os.fstat(fd).st_size
                if size >= _BIG_IDX_BYTES and hasattr(os, "pread"):
                    head = file.read(_TABLE)
                    self._file, fd = fd, -1
                    return head, size
                data = file.read()
                return data, len(data)
        except OSError as error:
            raise DamagedPackError(f"{self.path} cannot be read: {error}", hint=HINT) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def __del__(self) -> None:
        # Close it only here: the file may be removed, but the open descriptor stays valid.
        if self._file is not None:
            os.close(self._file)

    def _bytes(self, start: int, stop: int) -> bytes:
        if self._file is None:
            return self._data[start:stop]
        try:
            found = os.pread(self._file, stop - start, start)
        except OSError as error:
            raise DamagedPackError(f"{self.path} cannot be read: {error}", hint=HINT) from error
        if len(found) != stop - start:
            raise DamagedPackError(f"{self.path} was cut short", hint=HINT)
        return found

    def _check(self) -> None:
        data, size = self._data, self._size
        if size < _TABLE + 40 or len(data) < _TABLE or data[:8] != _IDX_START:
            raise DamagedPackError(f"{self.path} is no pack index (version 2)", hint=HINT)
        self._fanout: tuple[int, ...] = (0, *struct.unpack(">256I", data[8:_TABLE]))
        self.count = self._fanout[256]
        self._offsets = _TABLE + 24 * self.count
        self._big_offsets = self._offsets + 4 * self.count
        big_bytes = size - 40 - self._big_offsets
        # Every command opens every pack: compare in C.
        is_ordered = sorted(self._fanout) == list(self._fanout)
        if not is_ordered or big_bytes < 0 or big_bytes % 8 or big_bytes > 8 * self.count:
            raise DamagedPackError(f"{self.path} is truncated or damaged", hint=HINT)
        self._big_count = big_bytes // 8

    def find(self, oid: bytes) -> int | None:
        """The object's offset in the pack, or None."""
        position = self.position(oid)
        return None if position is None else self._offset(position)

    def position(self, oid: bytes) -> int | None:
        """The object's index among the sorted ids, or None."""
        first = oid[0]
        low, high = self._fanout[first], self._fanout[first + 1]
        if self._file is None:
            data, before = self._data, _TABLE
        else:
            data, before = self.bucket(first), -20 * low
        while high - low > _FEW:
            middle = (low + high) >> 1
            at = before + 20 * middle
            found = data[at : at + 20]
            if found < oid:
                low = middle + 1
            elif found == oid:
                return middle
            else:
                high = middle
        # A byte search in a few ids is faster than more bisection steps.
        start, stop = before + 20 * low, before + 20 * high
        at = data.find(oid, start, stop)
        while at >= 0 and (at - before) % 20:
            at = data.find(oid, at + 1, stop)  # the match spans two ids
        return None if at < 0 else (at - before) // 20

    def bucket(self, first: int) -> bytes:
        """The concatenated ids that begin with this byte."""
        fanout = self._fanout
        start, stop = _TABLE + 20 * fanout[first], _TABLE + 20 * fanout[first + 1]
        if self._file is None:  # a small pack: the common case
            return self._data[start:stop]
        found = self._buckets.get(first)
        if found is None:
            found = self._buckets[first] = self._bytes(start, stop)
        return found

    def _offset(self, position: int) -> int:
        at = self._offsets + 4 * position
        offset = int.from_bytes(self._bytes(at, at + 4), "big")
        if not offset & 0x80000000:
            return offset
        row = offset & 0x7FFFFFFF
        if row >= self._big_count:
            raise DamagedPackError(f"{self.path} is damaged: an offset is out of range", hint=HINT)
        at = self._big_offsets + 8 * row
        return int.from_bytes(self._bytes(at, at + 8), "big")

    def oids(self) -> Iterator[bytes]:
        data = self._bytes(_TABLE, _TABLE + 20 * self.count)
        return (one for (one,) in _ID.iter_unpack(data))

    def held(self, oids: set[bytes]) -> set[bytes]:
        """Those of `oids` that are in the pack; by one pass over the idx if they are many."""
        if len(oids) * 16 > self.count:
            return oids.intersection(self.oids())
        return {oid for oid in oids if self.position(oid) is not None}

    def is_same_as(self, other: PackIndex) -> bool:
        """Whether the two are identical, byte for byte."""
        return self._bytes(0, self._size) == other._bytes(0, other._size)

    def with_prefix(self, prefix: bytes) -> list[bytes]:
        """Ids that start with these whole bytes (at least one)."""
        low, high = self._fanout[prefix[0]], self._fanout[prefix[0] + 1]
        data = self._bytes(_TABLE + 20 * low, _TABLE + 20 * high)
        ids = [one for (one,) in _ID.iter_unpack(data)]
        start = bisect_left(ids, prefix)
        stop = start
        while stop < len(ids) and ids[stop].startswith(prefix):
            stop += 1
        return ids[start:stop]


def _open_at_once(path: str, flags: int = os.O_RDONLY) -> int:
    """Open without blocking: a command may have put a FIFO there."""
    return os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))


class Pack:
    """One pack with its idx. Opened when first read, closed by `close`."""

    def __init__(self, idx_path: str) -> None:
        self._file: int | None = None
        self.index = PackIndex(idx_path)
        self.path = idx_path[: -len("idx")] + "pack"

    def read(self, oid: bytes, read_base: BaseReader) -> tuple[str, bytes] | None:
        """Kind and verified content, or None if it is not in this pack."""
        try:
            offset = self.index.find(oid)
            if offset is None:
                return None
            kind, data = self._resolve(oid, offset, read_base)
        except (BadDeltaError, zlib.error, _BadEntryError, DamagedStoreError) as error:
            raise damaged(oid, f"is unreadable in {self.path}: {error}") from error
        check_id(oid, kind, data)
        return kind, data

    def _resolve(self, oid: bytes, offset: int, read_base: BaseReader) -> tuple[str, bytes]:
        deltas: list[bytes] = []
        while True:
            if len(deltas) > _CHAIN_MAX:
                raise _BadEntryError("its delta chain does not end")
            head = self._pread(offset, _FIRST_READ_BYTES)
            type_code, size, base, start = _entry_header(head, offset)
            data = self._inflate(head[start:], offset + len(head), size)
            if type_code in _KIND_NAMES:
                kind = _KIND_NAMES[type_code]
                break
            deltas.append(data)
            if isinstance(base, int):
                offset = base
                continue
            in_pack = self.index.find(base)
            if in_pack is None:
                if base == oid:
                    raise _BadEntryError("it is a delta of itself")
                kind, data = read_base(base)
                break
            offset = in_pack
        for delta in reversed(deltas):
            data = apply_delta(data, delta)
        return kind, data

    def _inflate(self, raw: bytes, at: int, size: int) -> bytes:
        """Decompress `raw` and what follows in the pack from `at` on, to `size` bytes."""
        stream = zlib.decompressobj()
        parts: list[bytes] = []
        produced, step = 0, 8 * _FIRST_READ_BYTES
        while True:
            # One byte more than announced, to detect an object that is too long.
            part = stream.decompress(raw, size + 1 - produced)
            produced += len(part)
            parts.append(part)
            if stream.eof or produced > size:
                break
            raw = stream.unconsumed_tail
            if not raw:
                raw = self._pread(at, step)
                at += len(raw)
                step = min(step * 8, 1 << 22)
            if not raw:
                raise _BadEntryError("it ends too early")
        if produced != size:
            raise _BadEntryError("its size is not the announced one")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pread(self, offset: int, size: int) -> bytes:
        if self._file is None:
            self._open()
        assert self._file is not None
        # The last 20 bytes are the pack's checksum, not part of any object. They are not cut off
        # here, because reading a header near the end may include some of them.
        try:
            if hasattr(os, "pread"):
                return os.pread(self._file, size, offset)
            os.lseek(self._file, offset, os.SEEK_SET)  # Windows: one reader per process
            return os.read(self._file, size)
        except (OSError, OverflowError) as error:
            raise DamagedPackError(f"{self.path} cannot be read: {error}", hint=HINT) from error

    def _open(self) -> None:
        try:
            self._file = _open_at_once(self.path)
        except OSError as error:
            raise DamagedPackError(f"{self.path} cannot be read: {error}", hint=HINT) from error
        head = self._pread(0, 12)
        if head[:4] != b"PACK" or head[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
            self.close()
            raise DamagedPackError(f"{self.path} is no pack", hint=HINT)
        if int.from_bytes(head[8:12], "big") != self.index.count:
            self.close()
            raise DamagedPackError(f"{self.path} and its index do not belong together", hint=HINT)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()


class _BadEntryError(ValueError):
    """What is wrong with one object's entry in a pack."""


def _entry_header(head: bytes, offset: int) -> tuple[int, int, int | bytes, int]:
    """``(type, size, delta base as offset or id, where in `head` the compressed bytes start)``."""
    if offset < 12 or len(head) < 22:
        raise _BadEntryError("it ends too early")
    byte, at = head[0], 1
    type_code, size, shift = (byte >> 4) & 7, byte & 15, 4
    while byte & 0x80:
        if at > 10:
            raise _BadEntryError("its size is malformed")
        byte = head[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
    if type_code in _KIND_NAMES:
        return type_code, size, 0, at
    if type_code == _REF_DELTA:
        return type_code, size, head[at : at + 20], at + 20
    if type_code != _OFS_DELTA:
        raise _BadEntryError("its type is unknown")
    byte = head[at]
    at += 1
    distance = byte & 0x7F
    while byte & 0x80:
        if at > 20:
            raise _BadEntryError("its base is malformed")
        byte = head[at]
        at += 1
        distance = ((distance + 1) << 7) | (byte & 0x7F)
    if not 0 < distance < offset:
        raise _BadEntryError("its base is outside the pack")
    return type_code, size, offset - distance, at
