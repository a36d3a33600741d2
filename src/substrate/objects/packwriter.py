"""Writing one pack: objects stream in, the pack and its idx get their names at the end.

No deltas: this is for taking in many new objects quickly. `Git.pack_reachable` makes them small.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

from substrate.objects.loose import compression_level
from substrate.system.files import fsync_dir, fsync_fd

_TYPE_CODES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_KINDS = {code: kind for kind, code in _TYPE_CODES.items()}
_BUFFER_BYTES = 1 << 20
_BIG_OFFSET = 0x80000000
#: So little hardly shrinks, and setting a compressor up costs more than all the rest.
_TINY_BYTES = 128


class PackWriter:
    """A pack in the making, under a temporary name that `finish` or `discard` takes away."""

    def __init__(self, objects_dir: str) -> None:
        self._pack_dir = f"{objects_dir}/pack"
        self._temp = f"{self._pack_dir}/tmp-substrate-{os.urandom(8).hex()}"
        os.makedirs(self._pack_dir, exist_ok=True)
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
        size = len(data)
        if size <= _TINY_BYTES:
            entry = _entry_header(_TYPE_CODES[kind], size) + _as_it_is(data)
        else:
            packed = zlib.compress(data, compression_level(data))
            entry = _entry_header(_TYPE_CODES[kind], size) + packed
        self._entries[oid] = (self._end, zlib.crc32(entry), len(entry))
        self._file.write(entry)
        self._end += len(entry)

    def read(self, oid: bytes) -> tuple[str, bytes]:
        """An object that was added before; `KeyError` if it was not."""
        offset, _, size = self._entries[oid]
        self._file.seek(offset)
        entry = self._file.read(size)
        self._file.seek(0, os.SEEK_END)
        at = 1
        while entry[at - 1] & 0x80:
            at += 1
        return _KINDS[(entry[0] >> 4) & 7], zlib.decompress(entry[at:])

    def finish(self, *, durable: bool = True) -> str:
        """Give the pack its name; returns that of its idx.

        The idx comes last, because its name is what makes readers look at the pack.
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
        rows = sorted(self._entries.items())
        fanout, total = [0] * 256, 0
        for oid, _ in rows:
            fanout[oid[0]] += 1
        for first, count in enumerate(fanout):
            total += count
            fanout[first] = total
        offsets: list[int] = []
        big: list[int] = []
        for _, (offset, _, _) in rows:
            if offset >= _BIG_OFFSET:
                offsets.append(_BIG_OFFSET | len(big))
                big.append(offset)
            else:
                offsets.append(offset)
        body = b"".join(
            (
                b"\xfftOc",
                struct.pack(">I256I", 2, *fanout),
                b"".join(oid for oid, _ in rows),
                struct.pack(f">{len(rows)}I", *(crc for _, (_, crc, _) in rows)),
                struct.pack(f">{len(rows)}I", *offsets),
                struct.pack(f">{len(big)}Q", *big),
                checksum,
            )
        )
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        for suffix in (".pack", ".idx"):
            Path(self._temp + suffix).unlink(missing_ok=True)


def _as_it_is(data: bytes) -> bytes:
    """A zlib stream of one stored block, as level 0 writes it."""
    size = len(data)
    lengths = struct.pack("<HH", size, size ^ 0xFFFF)
    return b"\x78\x01\x01" + lengths + data + zlib.adler32(data).to_bytes(4, "big")


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
