"""A real overlay to run real commands in, and an oracle that walks it with nothing but `os`."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore
from substrate.workspace.apply.layer_source import LayerDiff
from substrate.workspace.exclude import Exclusions
from substrate.workspace.scan.tree_scan import StatCache, scan
from substrate.world.interface import Layer
from substrate.world.layer.changes import Base, read_layer
from substrate.world.strategies import fuse_marks
from tests.mounts import unmount

Tree = dict[bytes, Node]
_KINDS = {stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.SYMLINK, stat.S_IFDIR: Kind.DIRECTORY,
          stat.S_IFIFO: Kind.FIFO, stat.S_IFSOCK: Kind.SOCKET, stat.S_IFCHR: Kind.CHAR_DEVICE,
          stat.S_IFBLK: Kind.BLOCK_DEVICE}  # fmt: skip


class Answer(NamedTuple):
    diff: LayerDiff
    #: What the oracle says, from walking the tree before and the mount after.
    expected: list[Change]

    @property
    def changes(self) -> list[Change]:
        return self.diff.changes()

    def of(self, path: bytes) -> tuple[Kind, Kind]:
        (change,) = [c for c in self.changes if c.path == path]
        return change.old.kind, change.new.kind

    def paths(self) -> dict[bytes, str]:
        return {c.path: _word(c) for c in self.changes}


def _word(change: Change) -> str:
    if change.old == ABSENT:
        return "added"
    return "deleted" if change.new == ABSENT else "changed"


class Overlay:
    """`lower` is the workspace; commands run in a mount over it."""

    def __init__(self, directory: Path, namespace: str) -> None:
        self.namespace = namespace
        self.lower = directory / "project"
        self.home = directory / "project" / ".substrate-git" / "worlds" / "wld_test"
        self.upper, self.work = self.home / "upper", self.home / "work"
        self.merged = directory / "merged"
        for one in (self.lower, self.upper, self.work, self.merged):
            one.mkdir(parents=True)
        self.store = ObjectStore(directory / "git")
        self.store.init()
        os.mknod(self.upper / ".substrate-git", stat.S_IFCHR, os.makedev(0, 0))

    @property
    def layer(self) -> Layer:
        prefix = fuse_marks.PREFIX
        if self.namespace != "fuse":
            prefix = f"{self.namespace}.overlay.".encode()
        return Layer("wld_test", self.home, self.upper, self.lower, "overlay", prefix)

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        options = f"lowerdir={self.lower},upperdir={self.upper},workdir={self.work}"
        options += ",userxattr" if self.namespace == "user" else ""
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(self.merged)]
        if self.namespace == "fuse":
            mount = ["fuse-overlayfs", "-o", options, str(self.merged)]
        subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)
        try:
            yield self.merged
        finally:
            unmount(self.merged)

    def run(
        self, command: str, exclusions: Exclusions | None = None, *, publish: bool = False
    ) -> Answer:
        """Run a line of shell in the overlay; then read its layer.

        `publish`: the contents stay in the store.
        """
        rules = exclusions or Exclusions()
        with Batch(self.store) as batch:
            seen = scan(self.lower, StatCache(), rules, batch, workers=1).seen
            base = Base(batch, snapshots.build(batch, seen.items()))
            before = tree(self.lower)
            with self.mounted() as merged:
                subprocess.run(["bash", "-ec", command], cwd=merged, check=True)
                after = tree(merged)
            diff = read_layer(self.layer, base, rules, batch)
            if publish:
                batch.publish()
            return Answer(diff, differences(before, after))

    def read(self, exclusions: Exclusions | None = None, *, may_vanish: bool = False) -> Answer:
        """The current contents of the layer; no oracle."""
        rules = exclusions or Exclusions()
        with Batch(self.store) as batch:
            seen = scan(self.lower, StatCache(), rules, batch, workers=1).seen
            base = Base(batch, snapshots.build(batch, seen.items()))
            return Answer(read_layer(self.layer, base, rules, batch, may_vanish=may_vanish), [])


def tree(root: Path) -> Tree:
    out: Tree = {}
    pending = [b""]
    top = os.fsencode(root)
    while pending:
        below = pending.pop()
        with os.scandir(os.path.join(top, below)) as found:
            entries = list(found)
        for entry in entries:
            if entry.name == b".substrate-git":
                continue
            path = os.path.join(below, entry.name)
            out[path] = _node(entry)
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return out


def _node(entry: os.DirEntry[bytes]) -> Node:
    at = entry.stat(follow_symlinks=False)
    kind = _KINDS[stat.S_IFMT(at.st_mode)]
    xattrs = tuple(
        sorted(
            (name.encode(), os.getxattr(entry.path, name, follow_symlinks=False))
            for name in os.listxattr(entry.path, follow_symlinks=False)
            if name.startswith("user.") and not name.startswith("user.overlay.")
        )
    )
    if kind is Kind.SYMLINK:
        return Node(kind, 0, _blob(os.readlink(entry.path)), xattrs)
    oid = _blob(Path(os.fsdecode(entry.path)).read_bytes()) if kind is Kind.FILE else b""
    return Node(kind, stat.S_IMODE(at.st_mode), oid, xattrs)


def _blob(data: bytes) -> bytes:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).digest()


def differences(before: Tree, after: Tree) -> list[Change]:
    return [
        Change(RelPath(path), before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted(before.keys() | after.keys())
        if before.get(path, ABSENT) != after.get(path, ABSENT)
    ]
