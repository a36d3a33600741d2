"""Content-addressed objects, ``objects/ab/cdef…``: written once, verified at every read.

An object is written under a unique name in ``tmp/`` and renamed into place, so that any number of
processes may write the same one. An existing object is verified before it is trusted: if it is
damaged, the good bytes replace it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.packs.format import PREFIX, hex_of, is_hex, ref_of, short
from substrate.system.files import fsync_dir, fsync_fd, sync_filesystem, write_all

#: Bytes in memory at a time, for objects of any size.
CHUNK = 1 << 20
#: From this many new objects on, one sync of the whole file system is cheaper than one each.
_MANY = 24
_FSCK_HINT = "`ctx fsck` lists what is damaged and what it breaks"


class Stored(NamedTuple):
    ref: str
    size: int


class MissingObjectError(DamagedStoreError):
    """A referenced object is missing."""


class Objects:
    """The objects of one store. Writers call `sync` before they name an object anywhere."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        self._directory = directory
        self._scratch = scratch
        self._fresh: list[Path] = []

    def path(self, ref: str) -> Path:
        digits = hex_of(ref)
        return self._directory / digits[:2] / digits[2:]

    def write(self, data: bytes) -> Stored:
        ref = ref_of(data)
        if not self._is_sound(ref, len(data)):
            self._write_new([data], expected=ref)
        return Stored(ref, len(data))

    def write_chunks(self, chunks: Iterable[bytes], expected: str | None = None) -> Stored:
        """Store what `chunks` yields, with one chunk in memory at a time.

        ``ValueError`` if the hash is not `expected`; nothing is stored then.
        """
        return self._write_new(chunks, expected)

    def adopt(self, path: Path, stored: Stored) -> Stored:
        """Turn our own file on the same file system, whose address is known, into an object."""
        if not self._is_sound(stored.ref, stored.size):
            self._publish(path, self.path(stored.ref))
        return stored

    def read(self, ref: str, limit: int | None = None) -> bytes:
        """The object's bytes, verified; at most `limit` of them are returned."""
        kept: list[bytes] = []
        room = limit
        for chunk in self._verified(ref):
            part = chunk if room is None else chunk[:room]
            if part:
                kept.append(part)
            room = None if room is None else room - len(part)
        return b"".join(kept)

    def chunks(self, ref: str) -> Iterator[bytes]:
        """The same in chunks. Yields nothing before the whole object is verified."""
        for _ in self._verified(ref):
            pass
        yield from self._verified(ref)

    def check(self, ref: str) -> None:
        """Raise unless the object exists and its bytes match its name."""
        for _ in self._verified(ref):
            pass

    def size(self, ref: str) -> int:
        """Its size on disk; `MissingObjectError` if it does not exist."""
        try:
            return os.stat(self.path(ref), follow_symlinks=False).st_size
        except OSError as error:
            raise _unreadable(ref, error) from error

    def __contains__(self, ref: str) -> bool:
        return os.path.lexists(self.path(ref))

    def __iter__(self) -> Iterator[str]:
        """The ref of every file with an object's name, sorted."""
        for fan in _names(self._directory):
            # A link instead of a directory leads to files that are not ours.
            if len(fan) == 2 and _is_directory(self._directory / fan):
                for rest in _names(self._directory / fan):
                    if is_hex(fan + rest):
                        yield PREFIX + fan + rest

    def strays(self) -> Iterator[Path]:
        """Paths in the objects' directory that are not objects."""
        for fan in _names(self._directory):
            directory = self._directory / fan
            if len(fan) != 2 or not _is_directory(directory):
                yield directory
                continue
            for rest in _names(directory):
                if not is_hex(fan + rest):
                    yield directory / rest

    def sync(self) -> None:
        """Make everything durable that was written since the last call."""
        fresh, self._fresh = self._fresh, []
        if not fresh or os.name == "nt":
            return
        if len(fresh) >= _MANY:
            fd = os.open(self._directory, os.O_RDONLY)
            try:
                if sync_filesystem(fd):
                    return
            finally:
                os.close(fd)
        for path in fresh:
            with contextlib.suppress(FileNotFoundError):
                _sync_file(path)
        for directory in {path.parent for path in fresh}:
            fsync_dir(directory)
        fsync_dir(self._directory)

    def remove(self, ref: str) -> int:
        """Remove the object; returns the bytes freed. For the garbage collector only."""
        path = self.path(ref)
        size = os.lstat(path).st_size
        os.unlink(path)
        return size

    def _write_new(self, chunks: Iterable[bytes], expected: str | None) -> Stored:
        temporary = self._scratch / f"object-{os.getpid():x}-{os.urandom(8).hex()}"
        try:
            ref, size = _write_file(temporary, chunks)
            if expected is not None and ref != expected:
                raise ValueError(f"its bytes hash to {short(ref)}, not to {short(expected)}")
            if not self._is_sound(ref, size):
                self._publish(temporary, self.path(ref))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        return Stored(ref, size)

    def _publish(self, temporary: Path, path: Path) -> None:
        if os.path.islink(path.parent):
            raise DamagedStoreError(
                f"{path.parent} is a link and in the way of the directory",
                hint="`ctx gc` takes it away",
            )
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            os.replace(temporary, path)
        self._fresh.append(path)

    def _is_sound(self, ref: str, size: int) -> bool:
        """Whether the object already exists undamaged. The writer replaces a damaged one."""
        try:
            found = os.lstat(self.path(ref))
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return False
        try:
            self.check(ref)
        except DamagedStoreError:
            return False
        return True

    def _verified(self, ref: str) -> Iterator[bytes]:
        try:
            fd = open_regular(self.path(ref))
        except OSError as error:
            raise _unreadable(ref, error) from error
        digest = hashlib.sha256()
        with os.fdopen(fd, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != hex_of(ref):
            raise DamagedStoreError(
                f"object {short(ref)} is damaged: its bytes hash to {digest.hexdigest()[:12]}",
                hint=_FSCK_HINT,
            )


def _write_file(path: Path, chunks: Iterable[bytes]) -> tuple[str, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags, 0o400)
    digest, size = hashlib.sha256(), 0
    try:
        for chunk in chunks:
            digest.update(chunk)
            write_all(fd, chunk)
            size += len(chunk)
        if os.name == "nt":  # a closed file cannot be synced there
            os.fsync(fd)
    finally:
        os.close(fd)
    return PREFIX + digest.hexdigest(), size


def open_regular(path: Path) -> int:
    """Open for reading without blocking or following a link; `OSError` for a FIFO or device."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def _unreadable(ref: str, error: OSError) -> DamagedStoreError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return MissingObjectError(f"object {short(ref)} is missing", hint=_FSCK_HINT)
    return DamagedStoreError(
        f"object {short(ref)} cannot be read: {error.strerror}", hint=_FSCK_HINT
    )


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        fsync_fd(fd)
    finally:
        os.close(fd)


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
