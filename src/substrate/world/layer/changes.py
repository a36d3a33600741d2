"""What a command changed, read from its layer alone.

The tree below is never walked: what was removed is known from history's snapshot, and in the tree
itself only the names that are in the layer are looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from substrate.model import ABSENT, ROOT, ManyBlobWriter, Node, RelPath, is_within, join
from substrate.objects.snapshots import Reader, Snapshot, snapshot_directory
from substrate.objects.snapshots import snapshot as snapshots
from substrate.system.files import share
from substrate.workspace import Exclusions
from substrate.workspace.apply import LayerDiff, LayerEntry, LeftOut
from substrate.workspace.paths import Directory, Walker
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from substrate.world.layer.bulk_files import Group, PlainFiles
from substrate.world.layer.hard_links import NewLinks, other_names
from substrate.world.layer.layer_entry import NOT_THERE, Frame, Name
from substrate.world.layer.upper import Upper

#: How many directories are kept open for the files in them, if this process may open so many.
_MOST_OPEN, _PART_OPEN = 100, 8


class Base(NamedTuple):
    """The state that the world started from, as far as history knows it."""

    reader: Reader
    snapshot: Snapshot


def read_layer(
    layer: Layer, base: Base, exclusions: Exclusions, blobs: ManyBlobWriter, *,
    may_vanish: bool = False,
) -> LayerDiff:  # fmt: skip
    """Everything the command did; contents of files that history keeps go to `blobs`.

    Reading changes nothing in the layer or in the tree. `may_vanish`: if a process still running in
    the world removes a directory during the read, skip that directory; a later read handles it."""
    with Upper(layer) as upper:
        reading = Reading(upper, layer, base, exclusions, blobs)
        reading.vanishing = (FileNotFoundError, NotADirectoryError) if may_vanish else ()
        return reading.run()


class Reading:
    """Reads the layer, directory by directory; `Name` reads what is not a plain file."""

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
        self.pending: list[Frame] = []
        #: The errors that show that a directory was removed, or replaced, since it was listed.
        self.vanishing: tuple[type[OSError], ...] = ()
        #: Files that are read together, and the frames they are in; their directories stay open.
        self.files: list[tuple[Frame, Group]] = []
        #: Files written in place that have more than one name in the tree, by their inode.
        self.linked: dict[tuple[int, int], Node] = {}
        self.new_links = NewLinks()

    def run(self) -> LayerDiff:
        self.pending.append(Frame(ROOT, self.base.snapshot, False, False))
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
        reason = layer_dirs.new_look(self.layer)
        self.left_out += [LeftOut(RelPath(b"."), reason)] if reason else []
        self.entries.sort(key=lambda one: one.path)
        emptied = tuple(sorted(self.emptied))
        return LayerDiff(tuple(self.entries), tuple(self.left_out), emptied, self.plain.stood)

    def forget(self, gone: RelPath) -> None:
        """Forget the directory, and what was found in it, as if it had not been listed."""
        if self.files and self.files[-1][0].path == gone:
            self.files.pop()[1].close()
        self.entries = [one for one in self.entries if not is_within(one.path, gone)]
        self.left_out = [one for one in self.left_out if not is_within(one.path, gone)]
        self.emptied = [path for path in self.emptied if not is_within(path, gone)]
        self.pending = [one for one in self.pending if not is_within(one.path, gone)]

    def directory(self, frame: Frame) -> None:
        known = None
        if frame.at is not None:
            known = snapshot_directory.Directory(self.base.reader, frame.at)
        directory = self.upper.open(frame.path)
        group = Group(frame.path, directory, known, None, [])
        self.files.append((frame, group))  # from here on it is closed in every case
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
            Name(self, frame, group, found).read()
        if frame.is_whole and known is not None:
            for name in known.names() - names.union(group.names):
                self.gone(join(frame.path, name))
        if not group.names:
            self.files.pop()
            group.close()

    def read_files(self) -> None:
        """The files of the listed directories: the plain ones together, then the others."""
        plain = self.plain.read([group for _, group in self.files])
        for entries, (frame, group) in zip(plain, self.files, strict=True):
            self.entries += entries
            if len(entries) < len(group.names):
                start = len(frame.path) + 1 if frame.path else 0
                done = {one.path[start:] for one in entries}
                rest = [name for name in group.names if name not in done]
                for found in self.upper.names(group.directory, frame.path, rest):
                    Name(self, frame, group, found).read()
            group.close()
        self.files = []

    def tree_directory(self, path: RelPath) -> Directory | None:
        try:
            return self.lower.directory(path)
        except NOT_THERE:
            return None  # gone by now, or unreadable: nothing is known of it

    def other_names(self) -> None:
        """A write to a file under one name is a write under all its names."""
        mentioned = {one.path for one in self.entries}
        for path, new in other_names(self.tree_directory, self.exclusions, self.linked):
            if path not in mentioned:
                old = snapshots.lookup(self.base.reader, self.base.snapshot, path)
                self.entries.append(LayerEntry(path, old, new, is_there=False))

    def gone(self, path: RelPath, *, is_there: bool = False) -> None:
        """A path of history and all below it are gone; `is_there`: by a whiteout of its own."""
        for below, node in snapshots.walk(self.base.reader, self.base.snapshot, path):
            self.entries.append(
                LayerEntry(below, node, ABSENT, is_there=is_there and below == path)
            )
