"""A second opinion on a tree: read everything, in the simplest way there is."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.system import clock
from substrate.workspace.exclude import Exclusions
from substrate.workspace.scan.tree_scan import KnownBlob, ScanResult, StatCache, cached_nodes, scan


def blob_id(data: bytes) -> bytes:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).digest()


class Blobs(dict[bytes, bytes]):
    """Everything that was handed in; `reads` counts how often."""

    reads = 0

    def add_blob(self, data: bytes) -> bytes:
        self.reads += 1
        oid = blob_id(data)
        self[oid] = data
        return oid


KINDS = [
    (stat.S_ISFIFO, Kind.FIFO),
    (stat.S_ISSOCK, Kind.SOCKET),
    (stat.S_ISCHR, Kind.CHAR_DEVICE),
    (stat.S_ISBLK, Kind.BLOCK_DEVICE),
]


def node(path: bytes) -> Node:
    info = os.lstat(path)
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return Node(Kind.SYMLINK, 0, blob_id(os.readlink(path)))
    if stat.S_ISDIR(info.st_mode):
        return Node(Kind.DIRECTORY, mode, b"", xattrs(path))
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as file:
            return Node(Kind.FILE, mode, blob_id(file.read()), xattrs(path))
    return Node(next(kind for is_kind, kind in KINDS if is_kind(info.st_mode)), mode)


def xattrs(path: bytes) -> tuple[tuple[bytes, bytes], ...]:
    if not hasattr(os, "listxattr"):
        return ()
    names = sorted(name for name in os.listxattr(path) if name.startswith("user."))
    return tuple((name.encode(), os.getxattr(path, name)) for name in names)


def walk(root: Path, exclusions: Exclusions | None = None) -> dict[RelPath, Node]:
    """Every recorded path below `root`."""
    rules = exclusions or Exclusions()
    out: dict[RelPath, Node] = {}
    pending = [b""]
    top = os.fsencode(root)
    while pending:
        here = pending.pop()
        for name in os.listdir(os.path.join(top, here)):
            path = RelPath(os.path.join(here, name))
            full = os.path.join(top, path)
            info = os.lstat(full)
            is_dir = stat.S_ISDIR(info.st_mode)
            if rules.reason(path, is_dir=is_dir, size=info.st_size) is not None:
                continue
            out[path] = node(full)
            if is_dir:
                pending.append(path)
    return out


@contextmanager
def later(seconds: float = 10) -> Iterator[None]:
    """As if the scan came so much later: nothing that exists now counts as just touched."""
    clock.set_clock(lambda: time.time_ns() + int(seconds * 1e9))
    try:
        yield
    finally:
        clock.set_clock(None)


class Bench:
    """A tree, its cache on disk, and the scans that go between them."""

    def __init__(self, base: Path) -> None:
        self.root = base / "work"
        self.root.mkdir()
        self.cache_path = base / "cache"
        self.cache = StatCache()
        self.blobs = Blobs()
        self.exclusions = Exclusions()

    def write(self, path: str, text: str = "x") -> Path:
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        return full

    def scan(
        self, *, workers: int | None = None, known: dict[RelPath, KnownBlob] | None = None
    ) -> ScanResult:
        """Load the cache, scan, save it, and check the cached state against the disk."""
        self.cache = StatCache.load(self.cache_path)
        self.blobs.reads = 0
        result = scan(
            self.root, self.cache, self.exclusions, self.blobs, workers=workers, known=known
        )
        self.cache.save(self.cache_path, describes=b"tip")
        return result

    def check(self) -> None:
        assert dict(cached_nodes(self.cache)) == walk(self.root, self.exclusions)

    def settled(self) -> ScanResult:
        """A scan whose findings need no second look."""
        with later():
            return self.scan()


def rel(text: str) -> RelPath:
    return RelPath(os.fsencode(text))
