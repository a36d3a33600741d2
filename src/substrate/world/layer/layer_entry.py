"""One name in a world's layer: what the command did at it, for `changes`."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.objects import snapshot as snapshots
from substrate.objects.directory import Snapshot
from substrate.workspace import untouched
from substrate.workspace.dirwalk import Directory
from substrate.workspace.layer import LayerEntry, LeftOut, arriving_mode
from substrate.workspace.probe import blob_id, kind_of, look, open_to_read
from substrate.world import fuse_marks
from substrate.world.origin import is_copy_of
from substrate.world.plain_files import Group
from substrate.world.upper import Found, has_capabilities, read_all

if TYPE_CHECKING:
    from substrate.world.changes import Reading

_STORE = b".substrate-git"
#: Any other failure must not look like an empty place: what shows through would count as removed.
NOT_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)
_NEVER_ARRIVES = {
    Kind.SOCKET: "a socket belongs to the process that made it",
    Kind.CHAR_DEVICE: "device nodes stay in the world",
    Kind.BLOCK_DEVICE: "device nodes stay in the world",
}


class Frame(NamedTuple):
    """A directory of the layer that is still to be read."""

    path: RelPath
    #: The same directory in history; None where that has none.
    at: Snapshot | None
    beyond: bool
    #: Nothing of the tree shows through.
    is_whole: bool


class Name:
    """One name of one directory."""

    def __init__(self, reading: Reading, frame: Frame, group: Group, found: Found) -> None:
        known, below = group.known, group.below
        self.reading = reading
        self.frame = frame
        self.directory = group.directory
        self.found = found
        self.path = found.path
        self.at = known.subdirectory(found.name) if known is not None else None
        self.old = known.node(found.name) if known is not None else ABSENT
        self.below = below
        self.stood = _lstat(below, found.name) if below is not None else None

    def read(self) -> None:
        kind = self.found.kind
        if self.path == _STORE:
            if kind is not Kind.ABSENT:
                self.leave_out("the place of Substrate's own store: nothing is put there")
        elif kind is Kind.ABSENT:
            self.removed()
        elif kind is Kind.DIRECTORY:
            with suppress(*self.reading.vanishing):
                self.directory_there()
        elif kind in _NEVER_ARRIVES:
            self.leave_out(_NEVER_ARRIVES[kind])
            if self.old != ABSENT or self.stood is not None:
                self.removed()
        else:
            with suppress(FileNotFoundError):  # gone by now: something still runs there
                self.leaf_there()

    def leave_out(self, reason: str) -> None:
        self.reading.left_out.append(LeftOut(self.path, reason))

    # ---------------------------------------------------------------- gone

    def removed(self) -> None:
        if self.old != ABSENT:
            self.reading.gone(self.path, is_there=True)
        stood = self.stood
        if stood is None:
            return
        is_dir = stat.S_ISDIR(stood.st_mode)
        if self.old == ABSENT and self.is_beyond(is_dir, stood.st_size):
            self.add(self.tree_node(), ABSENT, beyond=True)
        elif is_dir or self.old == ABSENT:
            self.reading.emptied.append(self.path)

    # ---------------------------------------------------------------- a directory

    def directory_there(self) -> None:
        found, stood = self.found, self.stood
        over_directory = stood is not None and stat.S_ISDIR(stood.st_mode)
        is_whole = found.is_opaque or not over_directory
        new = Node(Kind.DIRECTORY, found.mode, b"", found.xattrs)
        if not is_whole and self.is_only_a_copy():
            return
        if self.is_beyond(True, 0):
            self.add(self.tree_node(), new, beyond=True, is_whole=is_whole)
            self.go_on(None, beyond=True, is_whole=is_whole)
            return
        if over_directory and is_whole:
            self.reading.emptied.append(self.path)
        if over_directory and self.old.kind is Kind.DIRECTORY and self.looks_as_it_stood():
            new = self.old  # copied up for what is in it; its mode in history is not our business
        self.add(self.old, new, is_whole=is_whole)
        self.go_on(self.at, beyond=False, is_whole=is_whole)

    def is_only_a_copy(self) -> bool:
        """An earlier command's lock was in it, and the next one has got the layer."""
        assert self.stood is not None
        if self.found.at.st_mtime_ns != self.stood.st_mtime_ns or self.found.xattrs:
            return False
        upper, root = os.fsencode(self.reading.layer.upper), os.fsencode(self.reading.layer.lower)
        if not untouched.is_copy(upper, root, self.path, times_count=True):
            return False
        return not os.listdir(os.path.join(upper, self.path))

    def looks_as_it_stood(self) -> bool:
        assert self.stood is not None
        if self.found.mode != stat.S_IMODE(self.stood.st_mode):
            return False
        return self.found.xattrs == self.old.xattrs

    def go_on(self, at: Snapshot | None, *, beyond: bool, is_whole: bool) -> None:
        self.reading.pending.append(Frame(self.path, at, beyond, is_whole))

    # ---------------------------------------------------------------- files, links, FIFOs

    def leaf_there(self) -> None:
        found, stood = self.found, self.stood
        beyond = self.is_beyond(False, found.at.st_size if found.kind is Kind.FILE else 0)
        content = self.content(beyond)
        if not beyond and self.old.kind is Kind.DIRECTORY:
            for below, node in snapshots.walk(
                self.reading.base.reader, self.reading.base.snapshot, self.path
            ):
                if below != self.path:
                    self.reading.entries.append(LayerEntry(below, node, ABSENT, is_there=False))
        if not beyond and stood is not None and stat.S_ISDIR(stood.st_mode):
            self.reading.emptied.append(self.path)
        mode = 0 if found.kind is Kind.SYMLINK else found.mode
        if found.kind is Kind.FILE:
            mode = arriving_mode(mode, stood.st_mode if stood is not None else 0)
        if mode != found.mode and found.kind is Kind.FILE:
            self.leave_out(f"arrives as {mode:04o}: new set-id bits stay in the world")
        new = Node(found.kind, mode, content, found.xattrs)
        in_place = self.was_written_to()
        if found.has_capabilities and not has_capabilities(self.below, found.name):
            self.leave_out("arrives without its file capabilities: new ones stay in the world")
        if found.kind is Kind.FILE:
            self.reading.new_links.saw(self.path, found.at, in_place)
        if in_place and stood is not None and stood.st_nlink > 1 and new != self.old:
            self.reading.linked[stood.st_dev, stood.st_ino] = new
        self.add(
            self.tree_node() if beyond and self.old == ABSENT else self.old,
            new,
            beyond=beyond,
            in_place=in_place,
            is_marked=found.is_marked or (mode != found.mode and found.kind is Kind.FILE),
        )

    def was_written_to(self) -> bool:
        found, stood = self.found, self.stood
        if not found.origin or stood is None or found.kind is not Kind.FILE:
            return False
        if not stat.S_ISREG(stood.st_mode):
            return False
        if self.reading.layer.xattr_prefix == fuse_marks.PREFIX:
            return fuse_marks.is_copy(found.origin, self.path)
        if self.below is None or self.below.fd is None:
            return False
        return is_copy_of(found.origin, self.below.fd, found.name)

    def content(self, beyond: bool) -> bytes:
        """The blob id; of what history keeps, the content is kept too."""
        found = self.found
        if found.kind is Kind.SYMLINK:
            target = self.directory.readlink(found.name)
            return blob_id(target) if beyond else self.reading.blobs.add_blob(target)
        if found.kind is not Kind.FILE:
            return b""
        if beyond:
            # Moved in with the directory it is in: nothing will ever ask for its content.
            return b"" if self.frame.is_whole else look(self.directory, found.name).node.oid
        fd = open_to_read(self.directory, found.name)
        try:
            return self.reading.blobs.add_blob(read_all(fd, found.at.st_size))
        finally:
            os.close(fd)

    # ---------------------------------------------------------------- both

    def is_beyond(self, is_dir: bool, size: int) -> bool:
        if self.frame.beyond:
            return True
        rules = self.reading.exclusions
        return rules.own_reason(self.path, is_dir=is_dir, size=size) is not None

    def tree_node(self) -> Node:
        """What stands in the tree: its kind and mode, not its content."""
        if self.stood is None:
            return ABSENT
        kind = kind_of(self.stood)
        mode = 0 if kind is Kind.SYMLINK else stat.S_IMODE(self.stood.st_mode)
        return Node(kind, mode)

    def is_marked(self) -> bool:
        # A shut directory is opened to be read: its mode must be set before it arrives, too.
        shut = self.found.kind is Kind.DIRECTORY and self.found.mode & 0o700 != 0o700
        return self.found.is_marked or shut

    def add(
        self,
        old: Node,
        new: Node,
        *,
        beyond: bool = False,
        is_whole: bool = False,
        in_place: bool = False,
        is_marked: bool | None = None,
    ) -> None:
        at = self.found.at
        marked = self.is_marked() if is_marked is None else is_marked
        self.reading.entries.append(
            LayerEntry(
                self.path, old, new, beyond, True, is_whole, in_place, marked,
                (at.st_atime_ns, at.st_mtime_ns), (at.st_uid, at.st_gid),
            )
        )  # fmt: skip


def _lstat(directory: Directory, name: bytes) -> os.stat_result | None:
    try:
        return directory.lstat(name)
    except NOT_THERE:
        return None
