"""Write one pack: objects are appended, and the pack and its idx get their names at the end.

No deltas: this is for adding many new objects quickly. `Git.pack_reachable` later makes them small.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from substrate.model import ReadyBlob
from substrate.objects.store.loose import compression_level
from substrate.system.files import fsync_dir, fsync_fd, make_directory

_TYPE_CODES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_BLOB_CODE, _TREE_CODE = _TYPE_CODES["blob"], _TYPE_CODES["tree"]
_KINDS = {code: kind for kind, code in _TYPE_CODES.items()}
#: Bits of zlib's window. A small window compresses small contents equally well and takes half the
#: time to set up. A match can refer back by the window size less 262 bytes.
_WINDOW, _SMALL_WINDOW = 15, 12
_IN_SMALL_WINDOW = (1 << _SMALL_WINDOW) - 262
_BUFFER_BYTES = 1 << 20
_BIG_OFFSET = 0x80000000
#: So few bytes hardly shrink, and setting up a compressor costs more than everything else.
_TINY_BYTES = 128
#: Trees are mostly ids, which do not compress: they shrink by a quarter at most, for 25 ms per
#: megabyte. Later packing stores them as deltas anyway.
_BIG_TREE_BYTES = 64 << 10


class PackWriter:
    """A pack being written under a temporary name, until `finish` or `discard`."""

    def __init__(self, objects_dir: str) -> None:
        self._pack_dir = f"{objects_dir}/pack"
        self._temp = f"{self._pack_dir}/tmp-substrate-{os.urandom(8).hex()}"
        make_directory(self._pack_dir)
        self._file = open(f"{self._temp}.pack", "x+b", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._file.write(struct.pack(">4sII", b"PACK", 2, 0))
        self._end = 12
        self._flushed = 0
        #: id -> (offset, crc32, size of the entry)
        self._entries: dict[bytes, tuple[int, int, int]] = {}

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, oid: bytes, kind: str, data: bytes) -> None:
        """Append an object; `oid` must be its id, and new to this pack."""
        entry = _entry(_TYPE_CODES[kind], data)
        self._entries[oid] = (self._end, zlib.crc32(entry), len(entry))
        self._file.write(entry)
        self._end += len(entry)

    def add_blobs(self, blobs: Iterable[tuple[bytes, bytes]]) -> int:
        """Append those of ``(id, content)`` that are new to this pack; returns their size."""
        new = (one for one in blobs if one[0] not in self._entries)
        return self.add_ready(ready_blob(oid, data) for oid, data in new)

    def add_ready(self, blobs: Iterable[ReadyBlob]) -> int:
        """`add_blobs` for the results of `ready_blob`."""
        entries, end, parts, added = self._entries, self._end, [], 0
        for oid, entry, crc, size_bytes in blobs:
            if oid in entries:
                continue
            size = len(entry)
            entries[oid] = (end, crc, size)
            parts.append(entry)
            end += size
            added += size_bytes
        # Write before updating the state, so that no read finds a missing entry.
        self._file.write(b"".join(parts))
        self._end = end
        return added

    def read(self, oid: bytes) -> tuple[str, bytes]:
        """An object that was added earlier; `KeyError` if it was not."""
        offset, _, size = self._entries[oid]
        self._file.seek(offset)
        entry = self._file.read(size)
        self._file.seek(0, os.SEEK_END)
        at = 1
        while entry[at - 1] & 0x80:
            at += 1
        return _KINDS[(entry[0] >> 4) & 7], zlib.decompress(entry[at:])

    def finish(self, *, durable: bool = True) -> str:
        """Give the pack its final name; returns the name of its idx.

        The idx is renamed last, because readers find the pack through it.
        """
        checksum = self._complete_pack(durable)
        final = f"{self._pack_dir}/pack-{checksum.hex()}"
        with open(f"{self._temp}.idx", "xb") as file:
            file.write(self._index(checksum))
            file.flush()
            if durable:
                fsync_fd(file.fileno())
        for suffix in (".pack", ".idx"):
            os.chmod(self._temp + suffix, 0o444)
            os.replace(self._temp + suffix, final + suffix)
        if durable:
            fsync_dir(Path(self._pack_dir))
        return f"{final}.idx"

    def _complete_pack(self, durable: bool) -> bytes:
        """Fill in the number of objects, append the checksum over everything."""
        file = self._file
        file.seek(8)
        file.write(struct.pack(">I", len(self._entries)))
        file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while chunk := file.read(_BUFFER_BYTES):
            digest.update(chunk)
        file.write(digest.digest())
        file.flush()
        if durable:
            fsync_fd(file.fileno())
        file.close()
        return digest.digest()

    def _index(self, checksum: bytes) -> bytes:
        oids = sorted(self._entries)
        rows = [self._entries[oid] for oid in oids]
        # How many ids begin with this byte or a smaller one.
        fanout = [bisect_left(oids, bytes((first + 1,))) for first in range(255)]
        fanout.append(len(oids))
        offsets = [offset for offset, _, _ in rows]
        big: list[int] = []
        if self._end >= _BIG_OFFSET:
            for number, offset in enumerate(offsets):
                if offset >= _BIG_OFFSET:
                    offsets[number] = _BIG_OFFSET | len(big)
                    big.append(offset)
        body = b"".join(
            (
                b"\xfftOc",
                struct.pack(">I256I", 2, *fanout),
                b"".join(oids),
                struct.pack(f">{len(rows)}I", *[crc for _, crc, _ in rows]),
                struct.pack(f">{len(rows)}I", *offsets),
                struct.pack(f">{len(big)}Q", *big),
                checksum,
            )
        )
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    def discard(self) -> None:
        """Remove all temporary files."""
        self._file.close()
        for suffix in (".pack", ".idx"):
            Path(self._temp + suffix).unlink(missing_ok=True)


def ready_blob(oid: bytes, data: bytes) -> ReadyBlob:
    """A content as a pack entry, ready to write."""
    entry = _entry(_BLOB_CODE, data)
    return oid, entry, zlib.crc32(entry), len(data)


def _entry(type_code: int, data: bytes) -> bytes:
    """The pack entry of one object."""
    size = len(data)
    if size > _TINY_BYTES:
        is_big_tree = type_code == _TREE_CODE and size > _BIG_TREE_BYTES
        level = 0 if is_big_tree else compression_level(data)
        packed = zlib.compress(data, level, _SMALL_WINDOW if size <= _IN_SMALL_WINDOW else _WINDOW)
        return _entry_header(type_code, size) + packed
    start = _TINY_STARTS.get((type_code, size))
    if start is None:
        start = _TINY_STARTS[type_code, size] = _entry_header(type_code, size) + _stored(size)
    return start + data + zlib.adler32(data).to_bytes(4, "big")


#: The beginning of a tiny object's entry, by type and size.
_TINY_STARTS: dict[tuple[int, int], bytes] = {}


def _stored(size: int) -> bytes:
    """The beginning of a zlib stream with one stored block, as level 0 writes it."""
    return b"\x78\x01\x01" + struct.pack("<HH", size, size ^ 0xFFFF)


def _entry_header(type_code: int, size: int) -> bytes:
    byte = type_code << 4 | size & 15
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    out.append(byte)
    return bytes(out)
