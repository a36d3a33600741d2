"""What a command changed, read from its layer alone.

The tree below is never walked: what stood where something is gone comes from history's snapshot,
and of the tree itself only the names that lie in the layer are looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from substrate.model.nodes import ABSENT, ManyBlobWriter, Node
from substrate.model.paths import ROOT, RelPath, is_within, join
from substrate.objects import directory as snapshot_directory
from substrate.objects import snapshot as snapshots
from substrate.objects.directory import Reader, Snapshot
from substrate.system.descriptors import share
from substrate.workspace.dirwalk import Directory, Walker
from substrate.workspace.exclude import Exclusions
from substrate.workspace.layer import LayerDiff, LayerEntry, LeftOut
from substrate.world import layers, other_names
from substrate.world.changed_name import NOT_THERE, Frame, Name
from substrate.world.new_links import NewLinks
from substrate.world.plain_files import Group, PlainFiles
from substrate.world.protocol import Layer
from substrate.world.upper import Upper

#: So many directories are kept open for the files in them, if this process may have that many.
_MOST_OPEN, _PART_OPEN = 100, 8


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
        reading = Reading(upper, layer, base, exclusions, blobs)
        reading.vanishing = (FileNotFoundError, NotADirectoryError) if may_vanish else ()
        return reading.run()


class Reading:
    """The layer, directory by directory; `Name` reads what is no plain file."""

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
        #: What tells that a directory was removed, or replaced, since it was listed.
        self.vanishing: tuple[type[OSError], ...] = ()
        #: Files that are read together, and the frames they are in; what is open there stays so.
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
        reason = layers.new_look(self.layer)
        self.left_out += [LeftOut(RelPath(b"."), reason)] if reason else []
        self.entries.sort(key=lambda one: one.path)
        emptied = tuple(sorted(self.emptied))
        return LayerDiff(tuple(self.entries), tuple(self.left_out), emptied, self.plain.stood)

    def forget(self, gone: RelPath) -> None:
        """The directory, and what was found in it so far: it is as if it had not been listed."""
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
            Name(self, frame, group, found).read()
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
                    Name(self, frame, group, found).read()
            group.close()
        self.files = []

    def tree_directory(self, path: RelPath) -> Directory | None:
        try:
            return self.lower.directory(path)
        except NOT_THERE:
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
