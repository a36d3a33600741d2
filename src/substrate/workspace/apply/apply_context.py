"""Where a plan is carried out: the tree, the scratch directory beside it, the trash, and the
ways to verify and to let go of what was taken out of the tree."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from substrate.model.nodes import BlobReader, Kind, Node
from substrate.model.paths import RelPath, ancestors, parent
from substrate.system.files import sync_filesystem
from substrate.system.many_syncs import ManySyncs
from substrate.workspace.dirwalk import ALL, Directory, Walker
from substrate.workspace.layer import LayerSource
from substrate.workspace.move import discard
from substrate.workspace.openings import Openings
from substrate.workspace.plan import How, Op, Times
from substrate.workspace.probe import NOT_THERE, Seen, kind_of, look
from substrate.workspace.trash import Trash, TrashEntry

#: From so many directories on they are synced several at a time.
_SEVERAL = 4
#: A rewrite in place was about to begin: of one item (after its number), or of those listed.
MARK, MARKS = b".inplace", b"inplace"
#: How the reason begins why something goes to the trash that history leaves out.
EXCLUDED = "excluded from history"


class Excluder(Protocol):
    """What apply asks of `workspace.exclude.Exclusions`."""

    def reason(self, path: RelPath, *, is_dir: bool, size: int) -> str | None: ...


class State(Enum):
    TODO = "to do"
    DONE = "done"
    ALREADY = "already so"
    CONFLICT = "conflict"
    CANNOT = "cannot"


class Conflict(NamedTuple):
    """A path left alone because it was not in the expected state."""

    path: RelPath
    expected: Node
    found: Node
    reason: str


class Noted(NamedTuple):
    """A path, and what there is to say about it."""

    path: RelPath
    reason: str


class Mismatch(Exception):  # noqa: N818 - an outcome of one step, not an error anybody sees
    """The path is not in the state the plan expects; nothing was done to it."""

    def __init__(self, found: Node, reason: str) -> None:
        super().__init__(reason)
        self.found = found
        self.reason = reason


class Item:
    """One operation on its way."""

    def __init__(self, number: int, op: Op) -> None:
        self.number = number
        self.op = op
        self.path = op.path
        #: A directory that comes with all that is in it.
        self.is_whole_directory = op.how is How.FROM_LAYER and op.become.kind is Kind.DIRECTORY
        self.state = State.TODO
        self.seen = NOT_THERE
        #: What will really stand there: `op.become`, less what this file system cannot hold.
        self.become = op.become
        #: Why what stands there goes to the trash instead of being dropped; empty: it is dropped.
        self.keep = ""
        #: Phase one could not get there; phase two looks again.
        self.unseen = False
        #: A rewrite in place was under way when an earlier attempt ended.
        self.torn = False
        #: Its mark of a rewrite in place was made, and synced, with those of others.
        self.is_marked = False
        #: The directory of its scratch names, if the path is on another mount than scratch.
        self.local_at: RelPath | None = None
        #: The new thing lies in the layer and is exchanged from there: nothing is staged.
        self.in_layer = False
        #: A directory that goes whole: the items below that go with it.
        self.takes: list[Item] = []
        #: It goes with a directory above.
        self.is_taken = False

    @property
    def is_retouch(self) -> bool:
        """Only mode or attributes differ from what stands there: no new inode is needed."""
        found, new = self.seen.node, self.become
        if self.is_whole_directory:
            return False
        return found.kind is new.kind is not Kind.SYMLINK and found.oid == new.oid

    @property
    def is_rewrite(self) -> bool:
        """Other bytes for the file that stands there."""
        if self.op.how is not How.IN_PLACE or self.keep:
            return False
        found, new = self.seen.node, self.become
        return found.kind is new.kind is Kind.FILE and found.oid != new.oid

    def scratch_name(self, suffix: bytes = b"") -> bytes:
        return b"%d%s" % (self.number, suffix)


def matches(expect: Node, found: Node) -> bool:
    """Whether `found` may be changed. A file expected without content id was never read by
    history (excluded, huge): any file will do, and it is kept whole."""
    if expect.kind is Kind.FILE and not expect.oid:
        return found.kind is Kind.FILE
    return expect == found


class Site:
    """One attempt at a plan. Use as a context manager: it holds the scratch directory open."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        blobs: BlobReader,
        trash: Trash,
        exclusions: Excluder | None,
        under: str,
        *,
        layer: LayerSource | None = None,
    ) -> None:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.scratch = Directory.open_root(scratch)
        self.openings = Openings(self.scratch)
        self.root = root
        #: Changes modes of shut directories: for the second phase only.
        self.walker = Walker(root, self.openings.open, keep=True)
        #: The same without changing any mode: for the first phase.
        self.reader = Walker(root, keep=True)
        self.blobs = blobs
        self.exclusions = exclusions
        #: Where a world's new things lie.
        self.layer = layer
        #: For files that keep their inode: set while those are open anyway, and for which it is.
        self.times: Mapping[RelPath, Times] = {}
        self.timed: list[RelPath] = []
        self.trashed: list[TrashEntry] = []
        self.broken_links: list[RelPath] = []
        self.kept_directories: list[Noted] = []
        self._trash = trash
        self._under = under
        self._touched: set[RelPath] = set()
        #: The device that is synced as a whole in the end, if one is.
        self._whole_device: int | None = None
        #: Who syncs several files at a time, if there are several.
        self._syncs: ManySyncs | None = None
        token = hashlib.sha256(os.fsencode(scratch)).hexdigest()[:12]
        self.local_prefix = b".substrate-" + token.encode() + b"-"
        self._local: dict[RelPath, Directory] = {}

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.scratch.close()
        self.walker.close()
        self.reader.close()
        for directory in self._local.values():
            directory.close()

    # ---------------------------------------------------------------- looking

    def look(self, directory: Directory, name: bytes, path: RelPath) -> Seen:
        """`probe.look`, with a directory's passing mode taken for its real one."""
        seen = look(directory, name)
        if seen.node.kind is Kind.DIRECTORY:
            mode = self.openings.final_mode(path, seen.node.mode)
            return Seen(seen.node._replace(mode=mode), seen.stat)
        return seen

    def recheck(self, item: Item, directory: Directory, name: bytes) -> None:
        """Right before the write: `Mismatch` unless the path still is as it was when staged."""
        if item.seen.node.kind is Kind.FILE:
            try:
                if item.seen.same_inode_untouched(directory.lstat(name)):
                    return
            except FileNotFoundError:
                pass
        seen = self.look(directory, name, item.path)
        if seen.node != item.seen.node:
            raise Mismatch(seen.node, "changed while the operation was under way")
        item.seen = seen

    def excluded(self, path: RelPath, at: os.stat_result) -> str | None:
        if self.exclusions is None:
            return None
        is_dir = stat.S_ISDIR(at.st_mode)
        return self.exclusions.reason(path, is_dir=is_dir, size=at.st_size)

    def strangers_below(self, path: RelPath) -> tuple[list[RelPath], str]:
        """What a directory still holds that is not excluded (the first few), and the reason of
        the first excluded thing met."""
        strangers: list[RelPath] = []
        reason = ""
        stack = [path]
        while stack and len(strangers) < 3:
            here = stack.pop()
            with self.walker.directory(here, ALL) as directory:
                for name in directory.names():
                    below = RelPath(here + b"/" + name)
                    at = directory.lstat(name)
                    why = self.excluded(below, at)
                    reason = reason or why or ""
                    if why is None and kind_of(at) is Kind.DIRECTORY:
                        stack.append(below)
                    elif why is None:
                        strangers.append(below)
        return strangers, reason

    # ---------------------------------------------------------------- scratch names

    def slot(self, item: Item, suffix: bytes = b"") -> tuple[Directory, bytes]:
        """Where the item's new or displaced thing lies: normally in the scratch directory."""
        if item.in_layer and item.local_at is None and not suffix:
            place = self.layer.place(item.path) if self.layer is not None else None
            if place is None:
                raise FileNotFoundError(errno.ENOENT, "gone from the world's layer", item.path)
            return place
        if item.local_at is None:
            return self.scratch, item.scratch_name(suffix)
        return self.local_directory(item.local_at), self.local_prefix + item.scratch_name(suffix)

    def local_directory(self, path: RelPath) -> Directory:
        """A directory of the tree that stays open for scratch names of its mount."""
        if path not in self._local:
            self._local[path] = self.walker.directory(path, ALL)
        return self._local[path]

    def local_place(self, path: RelPath) -> RelPath:
        """The top of the mount that `path` lies on; its own directory when that cannot be told
        (a bind mount of the same file system)."""
        walker, own = Walker(self.root), self.scratch.own_stat().st_dev
        for above in reversed(ancestors(path)):
            try:
                with walker.directory(above) as directory:
                    if directory.own_stat().st_dev != own:
                        return above
            except OSError:
                break
        return parent(path)

    # ---------------------------------------------------------------- letting go

    def touch(self, path: RelPath) -> None:
        """The directory holding `path` has changed and must be synced."""
        self._touched.add(parent(path))

    def touch_directory(self, path: RelPath) -> None:
        """The directory itself has changed: its mode, its attributes."""
        self._touched.add(path)

    def syncs_together(self) -> None:
        """From now on files that keep their place are not waited for one by one."""
        if sys.platform == "linux":
            self._syncs = ManySyncs()

    def syncs_all_at_the_end(self) -> None:
        """From now on they are made durable by one call for the whole file system."""
        if sys.platform == "linux":
            self._whole_device = self.scratch.own_stat().st_dev

    def is_synced_later(self, device: int) -> bool:
        """Whether a changed file of that device that is given to `let_go` will be durable when
        `sync` returns; if not, it must be synced now."""
        return self._syncs is not None or device == self._whole_device

    def let_go(self, fd: int) -> None:
        """Close a file that was changed, in time."""
        if self._syncs is not None:
            self._syncs.add(fd)
        else:
            os.close(fd)

    def sync(self) -> None:
        """Make every change durable: of files given to `let_go`, of names and of directories."""
        if self._whole_device is not None and self.scratch.fd is not None:
            sync_filesystem(self.scratch.fd)
        walker = Walker(self.root)
        if self._syncs is None and len(self._touched) >= _SEVERAL and sys.platform == "linux":
            self._syncs = ManySyncs()
        for path in sorted(self._touched):
            try:
                directory = walker.directory(path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # gone (its own parent is in the set), or already shut again
            with directory:
                if directory.own_stat().st_dev == self._whole_device:
                    continue
                if self._syncs is not None and directory.fd is not None and directory.is_readable:
                    self._syncs.add(os.dup(directory.fd))
                else:
                    directory.sync()
        self._touched.clear()
        self.wait_for_syncs()

    def wait_for_syncs(self) -> None:
        syncs, self._syncs = self._syncs, None
        if syncs is not None:
            syncs.finish()

    def shut(self) -> None:
        """Give back every directory's own mode."""
        self.openings.shut_all(self.walker)

    def sweep(self, items: list[Item], *, finished: bool) -> None:
        """Remove what the items left in scratch that is ours; anything else goes to the trash.

        The mark of a torn rewrite stays until that is finished: it is what tells our half of a
        write from somebody's edit.
        """
        left = set(self.scratch.names())
        if MARKS in left and (finished or not any(item.torn for item in items)):
            self.scratch.unlink(MARKS)
            left.discard(MARKS)
        for item in items:
            if not left and item.local_at is None:
                continue
            part, mark, own = (item.scratch_name(end) for end in (b".part", MARK, b""))
            if part in left:
                discard(self.scratch, part)
            if mark in left and (finished or not item.torn):
                self.scratch.unlink(mark)
            if own in left:
                self._sweep(self.scratch, own, item)
            if item.local_at is not None:
                discard(*self.slot(item, b".part"))
                self._sweep(*self.slot(item), item)

    def _sweep(self, directory: Directory, name: bytes, item: Item) -> None:
        node = look(directory, name).node
        if node.kind is Kind.ABSENT:
            return
        if node.kind is Kind.DIRECTORY:
            try:
                directory.rmdir(name)
            except OSError:
                self.to_trash(directory, name, item.path, "was put into a directory of ours")
        elif (node.kind, node.oid) == (item.become.kind, item.become.oid):
            directory.unlink(name)
        else:
            self.to_trash(directory, name, item.path, "changed meanwhile")

    def from_trash(self, entry: TrashEntry) -> None:
        self._trash.restore(entry, self.root)
        self.trashed.remove(entry)

    def to_trash(self, directory: Directory, name: bytes, path: RelPath, why: str) -> TrashEntry:
        entry = self._trash.keep_from(directory, name, path=path, under=self._under, reason=why)
        self.trashed.append(entry)
        return entry


class Step(Protocol):
    """Something that was done, and can be undone until it is settled."""

    def undo(self, site: Site) -> None: ...

    def settle(self, site: Site) -> None:
        """The whole plan stands: let go of what this step kept for its way back."""


class OnItem:
    """The part of a step that they all share."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def undo(self, site: Site) -> None:
        raise NotImplementedError

    def settle(self, site: Site) -> None:
        pass
