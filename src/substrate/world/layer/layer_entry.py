"""One name in a world's layer: what the command did to it, for `changes`."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.system.files import Xattrs
from substrate.workspace.apply import (
    FILE_CAPABILITIES,
    LayerEntry,
    LeftOut,
    arriving_mode,
    layer_is_noop,
)
from substrate.workspace.paths import (
    Directory,
    blob_id,
    is_shut,
    kind_of,
    look,
    open_to_read,
    same_content,
    stat_id,
)
from substrate.world.layer.bulk_files import Group
from substrate.world.layer.copyup_origin import is_copy_of
from substrate.world.layer.upper import Found, has_capabilities, read_all
from substrate.world.strategies import fuse_marks

if TYPE_CHECKING:
    from substrate.world.layer.changes import Reading

_STORE = b".substrate-git"
#: Any other error must not look like a missing file: what is visible below would count as removed.
NOT_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)
_NEVER_ARRIVES = {
    Kind.SOCKET: "a socket belongs to the process that made it",
    Kind.CHAR_DEVICE: "device nodes stay in the world",
    Kind.BLOCK_DEVICE: "device nodes stay in the world",
}


class Frame(NamedTuple):
    """A directory of the layer that must still be read."""

    path: RelPath
    #: The same directory in history; None where history has none.
    at: Snapshot | None
    beyond: bool
    #: Nothing of the tree is visible through it.
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
            with suppress(FileNotFoundError):  # gone by now: a process still runs there
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
        if self.old == ABSENT and (self.is_beyond(is_dir, stood.st_size) or self.is_shut(stood)):
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
            # A recorded file or link whose name the directory takes leaves history.
            old = self.old if self.old.oid else self.tree_node()
            self.add(old, new, beyond=True, is_whole=is_whole)
            self.go_on(None, beyond=True, is_whole=is_whole)
            return
        if over_directory and is_whole:
            self.reading.emptied.append(self.path)
        if over_directory and self.old.kind is Kind.DIRECTORY and self.looks_as_it_stood():
            new = self.old  # copied up only for its contents; its mode in history stays
        self.add(self.old, new, is_whole=is_whole)
        self.go_on(self.at, beyond=False, is_whole=is_whole)

    def is_only_a_copy(self) -> bool:
        """Whether it was copied up only for an earlier command's lock, and the layer is reused."""
        assert self.stood is not None
        if self.found.at.st_mtime_ns != self.stood.st_mtime_ns or self.found.xattrs:
            return False
        if self.found.mode != stat.S_IMODE(self.stood.st_mode):  # we opened it to read
            return False
        upper, root = os.fsencode(self.reading.layer.upper), os.fsencode(self.reading.layer.lower)
        if not layer_is_noop.is_copy(upper, root, self.path, times_count=True):
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
        in_place = self.was_written_to()
        new = Node(found.kind, mode, content, self.arriving_attributes(in_place))
        if beyond and (in_place or self.is_perhaps_a_copy()) and self.stands_as(new):
            new = self.tree_node()  # only its times are new
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

    def arriving_attributes(self, in_place: bool) -> Xattrs:
        """Without file capabilities, unless the file had them and keeps its inode."""
        found = self.found
        if not found.has_capabilities or (in_place and has_capabilities(self.below, found.name)):
            return found.xattrs
        self.leave_out("arrives without its file capabilities: new ones stay in the world")
        capability = os.fsencode(FILE_CAPABILITIES)
        return tuple(one for one in found.xattrs if one[0] != capability)

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

    def is_perhaps_a_copy(self) -> bool:
        """Copied up from an unknown file, as it happens in a user namespace."""
        found, stood = self.found, self.stood
        is_file = found.kind is Kind.FILE and found.is_marked and not found.origin
        return is_file and stood is not None and stood.st_nlink == 1

    def stands_as(self, new: Node) -> bool:
        """Whether the tree has the same file there: git touches objects that it has already."""
        found, stood, below = self.found, self.stood, self.below
        if stood is None or below is None or self.old != ABSENT:
            return False
        if stood.st_size != found.at.st_size or stat.S_IMODE(stood.st_mode) != found.mode:
            return False
        with suppress(OSError):
            return look(below, found.name, self.reading.exclusions.size_cap_bytes).node == new
        return False

    def large_id(self) -> bytes:
        """For a file that is too large to keep: its content is read only if the tree has a file of
        the same size there. If that has the same content, it stays."""
        found, stood, below = self.found, self.stood, self.below
        if below is not None and stood is not None and stat.S_ISREG(stood.st_mode):
            with suppress(OSError):
                if same_content((self.directory, found.name), (below, found.name)):
                    return stat_id(stood)
        if below is not None and below.own_stat().st_dev == found.at.st_dev:
            return stat_id(found.at)
        return look(self.directory, found.name).node.oid  # a copy will have another id

    def content(self, beyond: bool) -> bytes:
        """The blob id; if history keeps the file, its content is stored, too."""
        found = self.found
        if found.kind is Kind.SYMLINK:
            target = self.directory.readlink(found.name)
            return blob_id(target) if beyond else self.reading.blobs.add_blob(target)
        if found.kind is not Kind.FILE:
            return b""
        if beyond:
            # Moved into place with its directory: its content is never needed.
            if self.frame.is_whole:
                return b""
            if found.at.st_size > self.reading.exclusions.size_cap_bytes:
                return self.large_id()
            return look(self.directory, found.name).node.oid
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

    def is_shut(self, stood: os.stat_result) -> bool:
        """Another user's file, which history could not read: it goes to the trash as a whole."""
        return self.below is not None and is_shut(self.below, self.found.name, stood)

    def tree_node(self) -> Node:
        """What is in the tree: its kind and mode, not its content."""
        if self.stood is None:
            return ABSENT
        kind = kind_of(self.stood)
        mode = 0 if kind is Kind.SYMLINK else stat.S_IMODE(self.stood.st_mode)
        return Node(kind, mode)

    def is_marked(self) -> bool:
        # An unreadable directory is opened to be read: its mode must be set before it is applied,
        # too.
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
