"""Keep long texts in a scratch file instead of in memory until they are stored."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.packs.format.content_address import PREFIX
from substrate.packs.store import CHUNK, Objects, Stored
from substrate.system.files import write_all

#: Texts above this many characters go to a scratch file.
LONG = 1 << 14


class Spilled(NamedTuple):
    """A text in a scratch file, as UTF-8, with its address."""

    path: Path
    ref: str
    size: int

    def text(self) -> str:
        """The text in memory, for fields where a manifest contains text itself."""
        return self.path.read_bytes().decode("utf-8")

    def chunks(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk


class Scratch:
    """A directory of spilled texts, removed when the `with` block ends."""

    def __init__(self, parent: Path) -> None:
        self._directory = parent / f"log-{os.getpid():x}-{os.urandom(8).hex()}"
        self._count = 0

    def __enter__(self) -> Scratch:
        self._directory.mkdir(mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                os.unlink(self._directory / name)
            self._directory.rmdir()

    def new_path(self) -> Path:
        self._count += 1
        return self._directory / str(self._count)

    def spill(self, pieces: Iterable[str]) -> Spilled:
        """Write `pieces` as UTF-8; ``UnicodeEncodeError`` for half a character."""
        path = self.new_path()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        fd = os.open(path, flags, 0o400)
        digest, size = hashlib.sha256(), 0
        try:
            for piece in pieces:
                data = piece.encode("utf-8")
                digest.update(data)
                write_all(fd, data)
                size += len(data)
        finally:
            os.close(fd)
        return Spilled(path, PREFIX + digest.hexdigest(), size)


def store_spilled(objects: Objects, spilled: Spilled) -> Stored:
    """Turn a scratch file into an object by renaming it."""
    return objects.adopt(spilled.path, Stored(spilled.ref, spilled.size))
