"""Ground for the tests of apply: a small tree, a dict of blobs, nodes made and read by hand."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath, rel_path
from substrate.system.files import renames
from substrate.workspace.apply.apply import Applier, Report
from substrate.workspace.apply.apply_context import Excluder
from substrate.workspace.apply.plan import How, Op, Plan
from substrate.workspace.apply.trash import Trash
from substrate.workspace.paths import nofollow_path
from substrate.workspace.paths.nofollow_path import Walker
from substrate.workspace.paths.read_node import blob_id, look


class Blobs:
    """A BlobReader with everything in a dict."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    def add(self, data: bytes) -> bytes:
        oid = blob_id(data)
        self.data[oid] = data
        return oid

    def read_blob(self, oid: bytes) -> bytes:
        return self.data[oid]


class Leaving:
    """Exclusions by name: what history leaves out."""

    def __init__(self, *names: bytes, cap: int = 1 << 30) -> None:
        self._names = names
        self.size_cap_bytes = cap

    def reason(self, path: RelPath, *, is_dir: bool, size: int) -> str | None:
        for part in path.split(b"/"):
            if part in self._names:
                return f"built-in: {part.decode()}/"
        return "larger than the cap" if not is_dir and size > self.size_cap_bytes else None


class Ground:
    """A workspace with a store beside it, and short words for the things tests do."""

    def __init__(self, base: Path, exclusions: Excluder | None = None) -> None:
        self.root = base / "tree"
        self.root.mkdir()
        self.store = self.root / ".substrate-git"
        self.store.mkdir(mode=0o700)
        self.blobs = Blobs()
        self.trash = Trash(self.store / "trash")
        self.scratch = self.store / "scratch" / "op-1"
        self.exclusions = exclusions

    def applier(self) -> Applier:
        return Applier(self.root, self.scratch, self.blobs, self.trash, self.exclusions)

    def apply(self, *ops: Op) -> Report:
        applier = self.applier()
        report = applier.carry_out(applier.stage(Plan.of(ops)))
        self.assert_swept()
        return report

    def assert_swept(self) -> None:
        assert not self.scratch.exists(), list(self.scratch.iterdir())

    # ------------------------------------------------------------ nodes

    def file(self, data: bytes, mode: int = 0o644, **xattrs: bytes) -> Node:
        pairs = tuple(sorted((b"user." + k.encode(), v) for k, v in xattrs.items()))
        return Node(Kind.FILE, mode, self.blobs.add(data), pairs)

    def link(self, target: bytes) -> Node:
        return Node(Kind.SYMLINK, 0, self.blobs.add(target))

    def directory(self, mode: int = 0o755, **xattrs: bytes) -> Node:
        return self.file(b"", mode, **xattrs)._replace(kind=Kind.DIRECTORY, oid=b"")

    def fifo(self, mode: int = 0o644) -> Node:
        return Node(Kind.FIFO, mode)

    def at(self, path: bytes) -> Node:
        """The current node at `path`; its content is added to the blobs."""
        where = self.where(path)
        try:
            parent, name = Walker(self.root).parent_of(rel_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        with parent:
            node = look(parent, name).node
        if node.kind is Kind.FILE and os.access(where, os.R_OK, effective_ids=True):
            self.blobs.add(where.read_bytes())
        elif node.kind is Kind.SYMLINK:
            self.blobs.add(os.readlink(os.fsencode(where)))
        return node

    def where(self, path: bytes) -> Path:
        return self.root / os.fsdecode(path)

    def put(self, path: bytes, node: Node) -> Node:
        """Create `node` at `path` (whose directory exists), by plain calls."""
        where = os.fsencode(self.where(path))
        if node.kind is Kind.FILE:
            fd = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, self.blobs.data[node.oid])
            os.close(fd)
        elif node.kind is Kind.SYMLINK:
            os.symlink(self.blobs.data[node.oid], where)
        elif node.kind is Kind.DIRECTORY:
            os.mkdir(where)
        elif node.kind is Kind.FIFO:
            os.mkfifo(where)
        for name, value in node.xattrs:
            os.setxattr(where, name, value)
        if node.kind not in (Kind.SYMLINK, Kind.ABSENT):
            os.chmod(where, node.mode)
        return node

    def op(self, path: bytes, become: Node, how: How = How.REPLACE) -> Op:
        """An operation that expects the current node at `path`."""
        return Op(rel_path(path), self.at(path), become, how)

    def listing(self) -> dict[bytes, tuple[str, int, bytes]]:
        """Every path below the root but the store: kind, mode, content."""
        out: dict[bytes, tuple[str, int, bytes]] = {}
        root = os.fsencode(self.root)
        for here, directories, names in os.walk(root):
            if here == root:
                directories[:] = [d for d in directories if d != b".substrate-git"]
            for name in [*directories, *names]:
                full = os.path.join(here, name)
                at = os.lstat(full)
                data = b""
                if stat.S_ISREG(at.st_mode):
                    with open(full, "rb") as file:
                        data = file.read()
                elif stat.S_ISLNK(at.st_mode):
                    data = os.readlink(full)
                kind = stat.filemode(at.st_mode)[0]
                out[os.path.relpath(full, root)] = (kind, stat.S_IMODE(at.st_mode), data)
        return out


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture(params=["native", "no-exchange", "by-path"])
def any_ground(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ground:
    """The same ground three times: as this system is, as one whose file system cannot exchange
    names, and as one without descriptor-relative calls."""
    if request.param != "native":
        monkeypatch.setattr(renames, "_system_call", lambda: None)
    if request.param == "by-path":
        monkeypatch.setattr(nofollow_path, "BY_DESCRIPTOR", False)
    return Ground(tmp_path)


def as_nobody(base: Path, work: Callable[[], None]) -> None:
    """Run `work` in a child that is not root; it fails the test by raising."""
    import traceback

    for above in [base, *base.parents]:
        at = above.stat()
        if at.st_uid == os.geteuid() and at.st_mode & 0o011 != 0o011:
            above.chmod(stat.S_IMODE(at.st_mode) | 0o011)
    renames._system_call()  # loads ctypes while the interpreter's own files can be read
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the parent shows it
            os.write(write_end, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        said = file.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, said


__all__ = ["ABSENT", "Blobs", "Ground", "Leaving", "any_ground", "as_nobody", "ground"]
