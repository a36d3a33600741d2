"""Loose objects: one zlib-compressed file each, named by the SHA-1 of its content."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from pathlib import Path

from substrate.errors import DamagedStoreError
from substrate.system.files import fsync_dir, fsync_fd, make_directory, write_all

HINT = "run `substrate fsck` to see what is affected, `substrate fsck --repair` to mend it"
KINDS = ("blob", "tree", "commit", "tag")
#: Level 1, because every command waits for this; packing compresses better later.
COMPRESSION_LEVEL = 1
_HEADER_MAX = 32
_BIG_FILE_BYTES = 1 << 20
_SAMPLE_BYTES = 16 << 10
#: How often to make the directory of an object again that another process removes as empty.
_TRIES = 5
_DIRECTORY = re.compile(r"[0-9a-f]{2}")


def object_id(kind: str, data: bytes) -> bytes:
    """The 20-byte git id of an object."""
    digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def damaged(oid: bytes, what: str) -> DamagedStoreError:
    return DamagedStoreError(f"object {oid.hex()} {what}", hint=HINT)


def check_id(oid: bytes, kind: str, data: bytes) -> None:
    """Raise unless `oid` is the id of `data`."""
    if object_id(kind, data) != oid:
        raise damaged(oid, "does not hold what its name says")


def loose_path(objects_dir: str, oid: bytes) -> str:
    name = oid.hex()
    return f"{objects_dir}/{name[:2]}/{name[2:]}"


#: Opening must not block on a FIFO that a command may have put there.
_READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def read_loose(objects_dir: str, oid: bytes) -> tuple[str, bytes] | None:
    """Kind and verified content, or None if there is no such file."""
    try:
        fd = os.open(loose_path(objects_dir, oid), _READING)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise damaged(oid, f"cannot be read: {error.strerror}") from error
    try:
        with open(fd, "rb", buffering=0) as file:
            raw = file.read()
    except OSError as error:
        raise damaged(oid, f"cannot be read: {error.strerror}") from error
    return decode_loose(oid, raw)


def decode_loose(oid: bytes, raw: bytes) -> tuple[str, bytes]:
    """Kind and content of a loose object file's bytes, verified against `oid`."""
    stream = zlib.decompressobj()
    try:
        start = stream.decompress(raw, 4096)
        header, separator, content = start.partition(b"\0")
        kind_text, _, size_text = header.partition(b" ")
        kind = kind_text.decode("ascii", "replace")
        if not separator or len(header) > _HEADER_MAX or kind not in KINDS:
            raise damaged(oid, "has no readable header")
        if not size_text.isdigit():
            raise damaged(oid, "has no readable size")
        size = int(size_text)
        # One byte more than announced, to detect an object that is too long.
        missing = size + 1 - len(content)
        if missing > 0 and not stream.eof:
            content += stream.decompress(stream.unconsumed_tail, missing)
    except zlib.error as error:
        raise damaged(oid, "is not readable: its compressed bytes are broken") from error
    # An exactly sized read may stop just before the end marker of the stream.
    if len(content) != size or not (stream.eof or _ends(stream)) or stream.unused_data:
        raise damaged(oid, "is truncated or has bytes that do not belong to it")
    check_id(oid, kind, content)
    return kind, content


def _ends(stream: zlib._Decompress) -> bool:
    try:
        return not stream.decompress(stream.unconsumed_tail, 1) and stream.eof
    except zlib.error:
        return False


def is_directory_name(name: str) -> bool:
    """Whether a directory of that name, in ``objects``, holds loose objects."""
    return _DIRECTORY.fullmatch(name) is not None


def write_loose(
    objects_dir: str, oid: bytes, kind: str, data: bytes, *, durable: bool = False
) -> None:
    """Write the object, replacing an existing file (for example a torn copy).

    With `durable` the bytes are synced before the rename; the name itself is durable only after
    the caller has also synced the directory (`sync_loose`).
    """
    path = loose_path(objects_dir, oid)
    directory = path.rpartition("/")[0]
    temp = f"{directory}/tmp_obj_{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = _create(temp, flags, directory)
    try:
        with open(fd, "wb", buffering=0) as file:
            for chunk in _compressed(kind, data):
                write_all(file.fileno(), chunk)
            if durable:
                fsync_fd(file.fileno())
        os.replace(temp, path)
    except BaseException:
        Path(temp).unlink(missing_ok=True)
        raise


def _create(temp: str, flags: int, directory: str) -> int:
    for _ in range(_TRIES):
        try:
            return os.open(temp, flags, 0o444)
        except FileNotFoundError:  # the first one there; or packing has just removed it
            make_directory(directory)
    return os.open(temp, flags, 0o444)


def compression_level(data: bytes) -> int:
    """0 for big contents that do not shrink (images, archives): trying takes 25 ms per megabyte."""
    if len(data) < _BIG_FILE_BYTES:
        return COMPRESSION_LEVEL
    middle = len(data) // 2
    sample = data[:_SAMPLE_BYTES] + data[middle : middle + _SAMPLE_BYTES] + data[-_SAMPLE_BYTES:]
    shrinks = len(zlib.compress(sample, COMPRESSION_LEVEL)) < 0.95 * len(sample)
    return COMPRESSION_LEVEL if shrinks else 0


def _compressed(kind: str, data: bytes) -> list[bytes]:
    header = b"%s %d\0" % (kind.encode(), len(data))
    if len(data) < _BIG_FILE_BYTES:
        return [zlib.compress(header + data, COMPRESSION_LEVEL)]
    # Do not copy a big content only to prepend a header.
    stream = zlib.compressobj(compression_level(data))
    return [stream.compress(header), stream.compress(data), stream.flush()]


def sync_loose(objects_dir: str, oids: list[bytes]) -> list[bytes]:
    """Make loose objects and their names durable; returns the missing ones."""
    missing, directories = [], set()
    for oid in oids:
        path = loose_path(objects_dir, oid)
        try:
            fd = os.open(path, _READING)
        except OSError:
            missing.append(oid)
            continue
        try:
            if os.name != "nt":  # there a descriptor opened for reading cannot be synced
                fsync_fd(fd)
        finally:
            os.close(fd)
        directories.add(path.rpartition("/")[0])
    for directory in sorted(directories):
        fsync_dir(Path(directory))
    if directories:
        fsync_dir(Path(objects_dir))
    return missing
