"""Where a plan is applied: the tree, its scratch directory and the trash.

Also the ways to verify, and to dispose of, what was taken out of the tree.
"""

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

from substrate.model import BlobReader, Kind, Node, RelPath, ancestors, parent
from substrate.system.files import ManySyncs, sync_filesystem
from substrate.workspace.apply.layer_source import LayerSource
from substrate.workspace.apply.plan import How, Op, Times
from substrate.workspace.apply.trash import Trash, TrashEntry
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import (
    ALL,
    NOT_THERE,
    Directory,
    Openings,
    Seen,
    Walker,
    discard,
    is_shut,
    kind_of,
    look,
)

#: From this many directories on, they are synced several at a time.
_SEVERAL = 4
#: A rewrite in place was about to begin: of one item (after its number), or of those listed.
MARK, MARKS = b".inplace", b"inplace"


class Excluder(Protocol):
    """The part of `workspace.exclude.Exclusions` that apply uses."""

    #: History does not keep larger files.
    size_cap_bytes: int

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
    """A path, and a remark about it."""

    path: RelPath
    reason: str


class Mismatch(Exception):  # noqa: N818 - an outcome of one step, not an error that a user sees
    """The path is not in the state the plan expects; nothing was done to it."""

    def __init__(self, found: Node, reason: str) -> None:
        super().__init__(reason)
        self.found = found
        self.reason = reason


class Item:
    """One operation and its progress."""

    def __init__(self, number: int, op: Op) -> None:
        self.number = number
        self.op = op
        self.path = op.path
        #: A directory that arrives with everything in it.
        self.is_whole_directory = op.how is How.FROM_LAYER and op.become.kind is Kind.DIRECTORY
        self.state = State.TODO
        self.seen = NOT_THERE
        self.was_looked_at = False
        #: The state the path will get: `op.become` without what this file system cannot hold.
        self.become = op.become
        #: Why the present entry goes to the trash instead of being dropped; None: it is dropped.
        self.keep: Kept | None = None
        #: Phase one could not reach it; phase two looks again.
        self.unseen = False
        #: A rewrite in place was in progress when an earlier attempt ended.
        self.torn = False
        #: Its rewrite mark was written, and synced, together with those of other items.
        self.is_marked = False
        #: The directory of its scratch names, if the path is on another mount than scratch.
        self.local_at: RelPath | None = None
        #: The new entry is in the layer and is exchanged from there: nothing is staged.
        self.in_layer = False
        #: A directory that is removed as a whole: the items below it that go with it.
        self.takes: list[Item] = []
        #: It is removed together with a directory above.
        self.is_taken = False

    @property
    def is_to_be_made(self) -> bool:
        """A directory that does not exist yet and will be created."""
        is_coming = self.become.kind is Kind.DIRECTORY and not self.is_whole_directory
        return is_coming and self.was_looked_at and self.seen is NOT_THERE

    @property
    def is_retouch(self) -> bool:
        """Only mode or attributes differ from the present entry: no new inode is needed."""
        found, new = self.seen.node, self.become
        if self.is_whole_directory:
            return False
        return found.kind is new.kind is not Kind.SYMLINK and found.oid == new.oid

    @property
    def is_rewrite(self) -> bool:
        """The present file gets other bytes."""
        if self.op.how is not How.IN_PLACE or self.keep:
            return False
        found, new = self.seen.node, self.become
        return found.kind is new.kind is Kind.FILE and found.oid != new.oid

    def scratch_name(self, suffix: bytes = b"") -> bytes:
        return b"%d%s" % (self.number, suffix)


def matches(expect: Node, found: Node) -> bool:
    """Whether `found` may be changed.

    A file expected without a content id was never read by history (excluded, huge): any file
    matches, and it is kept as a whole.
    """
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
        top: Directory | None = None,
    ) -> None:
        # If the caller holds the tree open, do not create parents: the tree may have been moved
        # away.
        scratch.mkdir(mode=0o700, parents=top is None, exist_ok=True)
        self.scratch = Directory.open_root(scratch)
        self.openings = Openings(self.scratch)
        #: The tree, held open: a path is always looked up in the same directory.
        self.top = Directory.open_root(root) if top is None else top.again()
        #: Opens directories that their mode closes to us, by changing it: for the second phase
        #: only.
        self.walker = Walker(self.top, self.openings.open, keep=True)
        #: The same without changing any mode: for the first phase.
        self.reader = Walker(self.top, keep=True)
        self.blobs = blobs
        self.exclusions = exclusions
        #: Larger files are not read.
        self.most_bytes = None if exclusions is None else exclusions.size_cap_bytes
        #: Where a world's new files are.
        self.layer = layer
        #: Times for files that keep their inode, set while those are open anyway; `timed`: where it
        #: was done.
        self.times: Mapping[RelPath, Times] = {}
        self.timed: list[RelPath] = []
        #: Files with several names that were changed in place: (device, inode).
        self.made_so: set[tuple[int, int]] = set()
        self.trashed: list[TrashEntry] = []
        self.broken_links: list[RelPath] = []
        self.kept_directories: list[Noted] = []
        self._trash = trash
        self._under = under
        self._touched: set[RelPath] = set()
        #: The device that is synced as a whole at the end, if any.
        self._whole_device: int | None = None
        #: Syncs several files at a time, if there are several.
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
        self.top.close()
        for directory in self._local.values():
            directory.close()

    # ---------------------------------------------------------------- looking

    def look(self, directory: Directory, name: bytes, path: RelPath) -> Seen:
        """`look`, with a directory's temporary mode replaced by its real one."""
        try:
            seen = look(directory, name, self.most_bytes)
        except PermissionError:
            at = directory.lstat(name)
            if not is_shut(directory, name, at):
                raise
            # Without a content id it equals no recorded state; it can only be moved as a whole.
            return Seen(Node(Kind.FILE, stat.S_IMODE(at.st_mode)), at)
        if seen.node.kind is Kind.DIRECTORY:
            mode = self.openings.final_mode(path, seen.node.mode)
            return Seen(seen.node._replace(mode=mode), seen.stat)
        return seen

    def recheck(self, item: Item, directory: Directory, name: bytes) -> None:
        """Right before the write: `Mismatch` unless the path is still as it was when staged."""
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
        """The first few entries of a directory that are not excluded.

        Also the reason of the first excluded entry.
        """
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
        """Where the item's new or displaced entry is: normally in the scratch directory."""
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
        """The top of the mount that holds `path`.

        Its own directory if the top cannot be found (a bind mount of the same file system).
        """
        walker, own = Walker(self.top), self.scratch.own_stat().st_dev
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
        """The directory that holds `path` has changed and must be synced."""
        self._touched.add(parent(path))

    def touch_directory(self, path: RelPath) -> None:
        """The directory itself has changed: its mode, its attributes."""
        self._touched.add(path)

    def syncs_together(self) -> None:
        """From now on, sync files that keep their inode together, not one by one."""
        if sys.platform == "linux":
            self._syncs = ManySyncs()

    def syncs_all_at_the_end(self) -> None:
        """From now on, one call makes the whole file system durable at the end."""
        if sys.platform == "linux":
            self._whole_device = self.scratch.own_stat().st_dev

    def is_synced_later(self, device: int) -> bool:
        """Whether `sync` will make a changed file of that device durable that is given to `let_go`.

        If not, the caller must sync the file now.
        """
        return self._syncs is not None or device == self._whole_device

    def let_go(self, fd: int) -> None:
        """Close a changed file, now or once it is synced."""
        if self._syncs is not None:
            self._syncs.add(fd)
        else:
            os.close(fd)

    def sync(self) -> None:
        """Make every change durable: of files given to `let_go`, of names and of directories."""
        if self._whole_device is not None and self.scratch.fd is not None:
            sync_filesystem(self.scratch.fd)
        walker = Walker(self.top)
        if self._syncs is None and len(self._touched) >= _SEVERAL and sys.platform == "linux":
            self._syncs = ManySyncs()
        for path in sorted(self._touched):
            try:
                directory = walker.directory(path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # removed (its own parent is in the set), or already closed again
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
        """Restore every directory's own mode."""
        self.openings.shut_all(self.walker)

    def sweep(self, items: list[Item], *, finished: bool) -> None:
        """Remove our own leftovers of the items from scratch; anything else goes to the trash.

        The mark of a torn rewrite stays until that rewrite is finished: it distinguishes our
        half-done write from a user's edit.
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
        node = look(directory, name, self.most_bytes).node
        if node.kind is Kind.ABSENT:
            return
        if node.kind is Kind.DIRECTORY:
            try:
                directory.rmdir(name)
            except OSError:
                self.to_trash(directory, name, item.path, Kept(TrashReason.ADDED))
        elif (node.kind, node.oid) == (item.become.kind, item.become.oid):
            directory.unlink(name)
        else:
            self.to_trash(directory, name, item.path, Kept(TrashReason.CHANGED))

    def from_trash(self, entry: TrashEntry) -> None:
        self._trash.restore(entry, self.top)
        self.trashed.remove(entry)

    def to_trash(self, directory: Directory, name: bytes, path: RelPath, why: Kept) -> TrashEntry:
        entry = self._trash.keep_from(directory, name, path=path, under=self._under, why=why)
        self.trashed.append(entry)
        return entry


class Step(Protocol):
    """A change that was made, and can be undone until it is settled."""

    def undo(self, site: Site) -> None: ...

    def settle(self, site: Site) -> None:
        """The whole plan is done: dispose of what this step kept for its undo."""


class OnItem:
    """The common part of all steps."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def undo(self, site: Site) -> None:
        raise NotImplementedError

    def settle(self, site: Site) -> None:
        pass
