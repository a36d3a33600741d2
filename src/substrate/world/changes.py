"""What a command changed, read from its layer alone.

The tree below is never walked: what stood where something is gone comes from history's snapshot,
and of the tree itself only the names that lie in the layer are looked at.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Kind, ManyBlobWriter, Node
from substrate.model.paths import ROOT, RelPath, is_within, join
from substrate.objects import directory as snapshot_directory
from substrate.objects import snapshot as snapshots
from substrate.objects.directory import Reader, Snapshot
from substrate.system.descriptors import share
from substrate.workspace import untouched
from substrate.workspace.dirwalk import Directory, Walker
from substrate.workspace.exclude import Exclusions
from substrate.workspace.layer import LayerDiff, LayerEntry, LeftOut, arriving_mode
from substrate.workspace.probe import blob_id, kind_of, look, open_to_read
from substrate.world import fuse_marks, layers, other_names
from substrate.world.new_links import NewLinks
from substrate.world.origin import is_copy_of
from substrate.world.plain_files import Group, PlainFiles
from substrate.world.protocol import Layer
from substrate.world.upper import Found, Upper, has_capabilities, read_all

_STORE = b".substrate-git"
#: So many directories are kept open for the files in them, if this process may have that many.
_MOST_OPEN, _PART_OPEN = 100, 8
#: Any other failure must not look like an empty place: what shows through would count as removed.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)
_NEVER_ARRIVES = {
    Kind.SOCKET: "a socket belongs to the process that made it",
    Kind.CHAR_DEVICE: "device nodes stay in the world",
    Kind.BLOCK_DEVICE: "device nodes stay in the world",
}


class Base(NamedTuple):
    """The state that the world started from, as far as history knows it."""

    reader: Reader
    snapshot: Snapshot


def read_layer(
    layer: Layer, base: Base, exclusions: Exclusions, blobs: ManyBlobWriter, *,
    may_vanish: bool = False,
) -> LayerDiff:  # fmt: skip
    """Everything the command did; contents of what history keeps go to `blobs`.

    Nothing in the layer or in the tree is changed by reading. `may_vanish`: a directory that
    something still running there removes meanwhile is left to who reads the layer after that."""
    with Upper(layer) as upper:
        reading = _Reading(upper, layer, base, exclusions, blobs)
        reading.vanishing = (FileNotFoundError, NotADirectoryError) if may_vanish else ()
        return reading.run()


class _Frame(NamedTuple):
    """A directory of the layer that is still to be read."""

    path: RelPath
    #: The same directory in history; None where that has none.
    at: Snapshot | None
    beyond: bool
    #: Nothing of the tree shows through.
    is_whole: bool


class _Reading:
    def __init__(
        self, upper: Upper, layer: Layer, base: Base, exclusions: Exclusions, blobs: ManyBlobWriter
    ) -> None:
        self.upper = upper
        self.layer = layer
        self.base = base
        self.exclusions = exclusions
        self.blobs = blobs
        self.plain = PlainFiles(layer.xattr_prefix, exclusions, blobs)
        self.lower = Walker(layer.lower)
        self.entries: list[LayerEntry] = []
        self.left_out: list[LeftOut] = []
        self.emptied: list[RelPath] = []
        self.pending: list[_Frame] = []
        #: What tells that a directory was removed, or replaced, since it was listed.
        self.vanishing: tuple[type[OSError], ...] = ()
        #: Files that are read together, and the frames they are in; what is open there stays so.
        self.files: list[tuple[_Frame, Group]] = []
        #: Files written in place that have more than one name in the tree, by their inode.
        self.linked: dict[tuple[int, int], Node] = {}
        self.new_links = NewLinks()

    def run(self) -> LayerDiff:
        self.pending.append(_Frame(ROOT, self.base.snapshot, False, False))
        most_open = share(_MOST_OPEN, _PART_OPEN)
        try:
            while self.pending or self.files:
                if self.pending and len(self.files) < most_open:
                    frame = self.pending.pop()
                    try:
                        self.directory(frame)
                    except self.vanishing:
                        if not frame.path:  # the layer itself
                            raise
                        self.forget(frame.path)
                else:
                    self.read_files()
        finally:
            for _, group in self.files:
                group.close()
        if self.linked:
            self.other_names()
        self.left_out += self.new_links.broken()
        reason = layers.new_look(self.layer)
        self.left_out += [LeftOut(RelPath(b"."), reason)] if reason else []
        self.entries.sort(key=lambda one: one.path)
        return LayerDiff(tuple(self.entries), tuple(self.left_out), tuple(sorted(self.emptied)))

    def forget(self, gone: RelPath) -> None:
        """The directory, and what was found in it so far: it is as if it had not been listed."""
        if self.files and self.files[-1][0].path == gone:
            self.files.pop()[1].close()
        self.entries = [one for one in self.entries if not is_within(one.path, gone)]
        self.left_out = [one for one in self.left_out if not is_within(one.path, gone)]
        self.emptied = [path for path in self.emptied if not is_within(path, gone)]
        self.pending = [one for one in self.pending if not is_within(one.path, gone)]

    def directory(self, frame: _Frame) -> None:
        known = None
        if frame.at is not None:
            known = snapshot_directory.Directory(self.base.reader, frame.at)
        directory = self.upper.open(frame.path)
        group = Group(frame.path, directory, known, None, [])
        self.files.append((frame, group))  # closed from here on, whatever happens
        if not frame.is_whole:
            group = group._replace(below=self.tree_directory(frame.path))
            self.files[-1] = (frame, group)
        names = set()
        listed = self.upper.listed(directory)
        files = [] if self.upper.is_by_fuse else [name for name, is_file in listed if is_file]
        rest = [name for name, is_file in listed if not is_file or self.upper.is_by_fuse]
        if not frame.beyond:
            group.names.extend(files)
        elif frame.is_whole:
            moved = self.plain.read_beyond(directory, frame.path, files)
            self.entries += moved.entries
            rest += moved.rest
        else:
            rest += files
        for found in self.upper.names(directory, frame.path, rest):
            names.add(found.name)
            _Name(self, frame, group, found).read()
        if frame.is_whole and known is not None:
            for name in known.names() - names.union(group.names):
                self.gone(join(frame.path, name))
        if not group.names:
            self.files.pop()
            group.close()

    def read_files(self) -> None:
        """Those of the directories that were listed: the plain ones together, then the others."""
        plain = self.plain.read([group for _, group in self.files])
        for entries, (frame, group) in zip(plain, self.files, strict=True):
            self.entries += entries
            if len(entries) < len(group.names):
                start = len(frame.path) + 1 if frame.path else 0
                done = {one.path[start:] for one in entries}
                rest = [name for name in group.names if name not in done]
                for found in self.upper.names(group.directory, frame.path, rest):
                    _Name(self, frame, group, found).read()
            group.close()
        self.files = []

    def tree_directory(self, path: RelPath) -> Directory | None:
        try:
            return self.lower.directory(path)
        except _NOT_THERE:
            return None  # gone meanwhile, or shut to us: nothing is known of it

    def other_names(self) -> None:
        """Who writes to a file under one name has written to it under all."""
        mentioned = {one.path for one in self.entries}
        for path, new in other_names.of(self.tree_directory, self.exclusions, self.linked):
            if path not in mentioned:
                old = snapshots.lookup(self.base.reader, self.base.snapshot, path)
                self.entries.append(LayerEntry(path, old, new, is_there=False))

    def gone(self, path: RelPath, *, is_there: bool = False) -> None:
        """History's path and all below are gone; `is_there`: by a whiteout of its own."""
        for below, node in snapshots.walk(self.base.reader, self.base.snapshot, path):
            self.entries.append(
                LayerEntry(below, node, ABSENT, is_there=is_there and below == path)
            )


class _Name:
    """One name of one directory."""

    def __init__(self, reading: _Reading, frame: _Frame, group: Group, found: Found) -> None:
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
        self.reading.pending.append(_Frame(self.path, at, beyond, is_whole))

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
    except _NOT_THERE:
        return None
