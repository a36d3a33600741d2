"""One directory of a snapshot: its main tree and its attrs tree as one listing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from substrate.model import ABSENT, Kind, Node
from substrate.objects.snapshots import attrs
from substrate.objects.snapshots.attrs import NO_ATTRS, PLAIN, AttrsTree, EntryAttrs, Record
from substrate.objects.snapshots.trees import (
    MODE_DIR,
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    Entry,
    Tree,
    any_forbidden,
    is_forbidden_name,
    parse_tree,
)
from substrate.objects.store import Batch, damaged


class Reader(Protocol):
    """Where trees and records come from: an `ObjectStore` or a `Batch`."""

    def read_tree(self, oid: bytes) -> Tree: ...

    def read_blob(self, oid: bytes) -> bytes: ...


class Snapshot(NamedTuple):
    """A state of the workspace, or of a directory in it: two trees; ``b""`` for a missing one.

    The main tree of the workspace itself always exists, even if it is empty.
    """

    tree: bytes
    attrs: bytes = b""


_USUAL_MODES = (attrs.FILE_MODE, attrs.EXEC_MODE)
#: The snapshot of a missing directory: every real directory below the root has a tree.
NOTHING = Snapshot(b"", b"")


def read_record(reader: Reader, split: AttrsTree) -> Record:
    return attrs.parse_record(reader.read_blob(split.record_oid)) if split.record_oid else PLAIN


def directory_node(reader: Reader, attrs_oid: bytes) -> Node:
    """The node of a directory, from its attrs tree alone."""
    if not attrs_oid:
        return Node(Kind.DIRECTORY, attrs.DIR_MODE)
    record = read_record(reader, attrs.split_attrs_tree(reader.read_tree(attrs_oid)))
    return Node(Kind.DIRECTORY, record.dir_mode, b"", record.dir_xattrs)


class Directory:
    """The content of one directory, as read. Never changed; see `DirectoryEdit`."""

    def __init__(self, reader: Reader, at: Snapshot) -> None:
        self.at = at
        self._reader = reader
        self.tree: Tree = reader.read_tree(at.tree) if at.tree else {}
        self.attrs_tree: Tree = reader.read_tree(at.attrs) if at.attrs else {}
        split = attrs.split_attrs_tree(self.attrs_tree) if at.attrs else NO_ATTRS
        self.subdirs, self.forbidden = split.subdirs, split.forbidden
        self.record = read_record(reader, split)

    def names(self) -> set[bytes]:
        special = {name for name, entry in self.record.entries.items() if entry.kind is not None}
        return {*self.tree, *self.forbidden, *self.subdirs, *special}

    def entry(self, name: bytes) -> Entry | None:
        return self.tree.get(name) or self.forbidden.get(name)

    def subdirectory(self, name: bytes) -> Snapshot | None:
        """The trees of subdirectory `name`; None if it is not a directory."""
        entry, attrs_oid = self.entry(name), self.subdirs.get(name, b"")
        if entry is None:
            return Snapshot(b"", attrs_oid) if attrs_oid else None
        return Snapshot(entry[1], attrs_oid) if entry[0] == MODE_DIR else None

    def may_be_plain(self, name: bytes) -> bool:
        """Whether `name` is a regular file or absent: cheaper than `node`."""
        entry = self.tree.get(name)
        if entry is None:
            return self.node(name).kind in (Kind.FILE, Kind.ABSENT)
        return entry[0] in (MODE_FILE, MODE_EXEC)

    def node(self, name: bytes) -> Node:
        entry = self.entry(name)
        if entry is None or entry[0] == MODE_DIR:
            if entry is not None or name in self.subdirs:
                return directory_node(self._reader, self.subdirs.get(name, b""))
            special = self.record.entries.get(name)
            if special is None or special.kind is None:
                return ABSENT
            return Node(special.kind, special.mode or 0, b"", special.xattrs)
        mode, oid = entry
        said = self.record.entries.get(name)
        xattrs = said.xattrs if said else ()
        if mode == MODE_LINK:
            return Node(Kind.SYMLINK, 0, oid, xattrs)
        if mode not in (MODE_FILE, MODE_EXEC):
            raise damaged(self.at.tree, f"has an entry of unknown mode {mode:o}")
        return Node(Kind.FILE, self.record.mode_of(name, mode), oid, xattrs)

    def nodes(self) -> Iterator[tuple[bytes, Node]]:
        """Every name and its node, sorted by name."""
        for name in sorted(self.names()):
            yield name, self.node(name)


class DirectoryEdit:
    """A directory being rewritten; `write` returns its new trees."""

    def __init__(self, base: Directory, *, existed: bool) -> None:
        self.base = base
        #: Whether the directory existed before; an existing empty directory is kept.
        self.existed = existed
        self._tree = dict(base.tree)
        self._forbidden = dict(base.forbidden)
        self._subdirs = dict(base.subdirs)
        self._own = (base.record.dir_mode, base.record.dir_xattrs)
        #: The record's entries for names that were set or removed.
        self._said: dict[bytes, EntryAttrs | None] = {}

    def set_own(self, node: Node) -> None:
        """Mode and xattrs of the directory itself."""
        self._own = (node.mode & 0o7777, node.xattrs)

    def remove(self, name: bytes) -> None:
        self._tree.pop(name, None)
        self._forbidden.pop(name, None)
        self._subdirs.pop(name, None)
        self._said[name] = None

    def put(self, name: bytes, node: Node) -> None:
        """Set a file, link or special file, replacing any existing entry."""
        self.remove(name)
        mode = node.mode & 0o7777
        if node.is_special:
            self._said[name] = EntryAttrs(mode, node.xattrs, node.kind)
            return
        if len(node.oid) != 20:
            raise ValueError(f"{name!r}: a {node.kind.value} needs a blob id")
        if node.kind is Kind.SYMLINK:
            self._put_entry(name, (MODE_LINK, node.oid))
            self._said[name] = EntryAttrs(None, node.xattrs)
        else:
            self._put_entry(name, (attrs.git_mode_of(mode), node.oid))
            self._said[name] = EntryAttrs(mode, node.xattrs)

    def put_plain(self, nodes: Mapping[bytes, Node]) -> dict[bytes, Node]:
        """Quickly set the files that need no entry in the record; returns the others.

        If the record has exceptions to the usual modes, all files are returned, for `put`.
        """
        record = self.base.record
        if record.entries or (record.file_mode, record.exec_mode) != _USUAL_MODES:
            return dict(nodes)
        tree, rest, others = self._tree, {}, {*self._forbidden, *self._subdirs}
        are_allowed = not any_forbidden(nodes)
        git_modes = {attrs.FILE_MODE: MODE_FILE, attrs.EXEC_MODE: MODE_EXEC}
        for name, node in nodes.items():
            kind, mode, oid, xattrs = node
            git_mode = git_modes.get(mode)
            if (
                kind is Kind.FILE
                and git_mode
                and not xattrs
                and len(oid) == 20
                and (are_allowed or not is_forbidden_name(name))
                and name not in others
            ):
                tree[name] = (git_mode, oid)
            else:
                rest[name] = node
        return rest

    def put_directory(self, name: bytes, at: Snapshot) -> None:
        self.remove(name)
        if at.tree:
            self._put_entry(name, (MODE_DIR, at.tree))
        if at.attrs:
            self._subdirs[name] = at.attrs

    def _put_entry(self, name: bytes, entry: Entry) -> None:
        (self._forbidden if is_forbidden_name(name) else self._tree)[name] = entry

    @property
    def is_empty(self) -> bool:
        return not (self._tree or self._forbidden or self._subdirs) and not any(
            entry.kind is not None for entry in self._entries().values()
        )

    def write(self, batch: Batch, *, is_root: bool = False) -> Snapshot:
        """Write the changed ones of the two trees; the mode of the root is not recorded."""
        mode, xattrs = (attrs.DIR_MODE, ()) if is_root else self._own
        record = Record(mode, xattrs, *self._file_attrs())
        record_oid = b""
        if record != PLAIN or (self.is_empty and not is_root):
            record_oid = batch.add_blob(attrs.serialize_record(record))
        attrs_tree = attrs.join_attrs_tree(AttrsTree(record_oid, self._subdirs, self._forbidden))
        base = self.base
        return Snapshot(
            self._write_tree(batch, is_root),
            base.at.attrs
            if attrs_tree and attrs_tree == base.attrs_tree
            else _tree_oid(batch, attrs_tree, False),
        )

    def _write_tree(self, batch: Batch, is_root: bool) -> bytes:
        if self._tree and self._tree == self.base.tree:
            return self.base.at.tree
        # The empty tree of an empty workspace is written, too: fsck requires it.
        return _tree_oid(batch, self._tree, is_root)

    def _entries(self) -> dict[bytes, EntryAttrs]:
        """What is known about each entry, with the exact mode of files that were set."""
        known: dict[bytes, EntryAttrs | None] = {**self.base.record.entries, **self._said}
        return {name: entry for name, entry in known.items() if entry is not None}

    def _file_attrs(self) -> tuple[int, int, Mapping[bytes, EntryAttrs]]:
        """The default modes and the exceptions, from the current content alone."""
        base, known = self.base.record, self._entries()
        if (base.file_mode, base.exec_mode) == (attrs.FILE_MODE, attrs.EXEC_MODE) and all(
            _is_implicit(entry) for entry in known.values()
        ):
            return attrs.FILE_MODE, attrs.EXEC_MODE, {}
        exact: dict[bytes, int] = {}
        counts: dict[int, Counter[int]] = {MODE_FILE: Counter(), MODE_EXEC: Counter()}
        for entries in (self._tree, self._forbidden):
            for name, (git_mode, _) in entries.items():
                if git_mode in counts:
                    entry = known.get(name)
                    mode = entry.mode if entry else None
                    if mode is None:
                        mode = base.exec_mode if git_mode == MODE_EXEC else base.file_mode
                    exact[name] = mode
                    counts[git_mode][mode] += 1
        file_mode = attrs.commonest(counts[MODE_FILE], attrs.FILE_MODE)
        exec_mode = attrs.commonest(counts[MODE_EXEC], attrs.EXEC_MODE)
        defaults = {file_mode, exec_mode}
        out = {name: e for name, e in known.items() if e.xattrs or e.kind is not None}
        for name, mode in exact.items():
            if mode not in defaults:
                out[name] = EntryAttrs(mode, out[name].xattrs if name in out else ())
            elif name in out:
                out[name] = EntryAttrs(None, out[name].xattrs)
        return file_mode, exec_mode, out


class ReadyDirectory(NamedTuple):
    """The files and links of a new directory, serialised in advance."""

    #: Their lines of the tree object, in git's order; no name among them is forbidden.
    tree_lines: bytes
    file_mode: int
    exec_mode: int
    #: The record's entries for them.
    entries: Mapping[bytes, EntryAttrs]


class ReadyEdit(DirectoryEdit):
    """A new directory with serialised files, which usually stay unchanged."""

    def __init__(self, nothing: Directory, ready: ReadyDirectory) -> None:
        super().__init__(nothing, existed=False)
        #: None after the files were put into the tree like any others.
        self._ready: ReadyDirectory | None = ready

    @property
    def is_empty(self) -> bool:
        return not (self._ready and self._ready.tree_lines) and super().is_empty

    def write(self, batch: Batch, *, is_root: bool = False) -> Snapshot:
        if self._tree or self._said or self._forbidden:
            self._unpack()
        return super().write(batch, is_root=is_root)

    def _unpack(self) -> None:
        ready, self._ready = self._ready, None
        if ready is None:
            return
        defaults = {MODE_FILE: ready.file_mode, MODE_EXEC: ready.exec_mode}
        plain = ready[1:] == (attrs.FILE_MODE, attrs.EXEC_MODE, {})
        for name, (git_mode, oid) in parse_tree(ready.tree_lines).items():
            if name in self._tree or name in self._said:
                continue  # set or removed since
            self._tree[name] = (git_mode, oid)
            if git_mode in defaults and not plain:
                self._said[name] = ready.entries.get(name) or EntryAttrs(defaults[git_mode])

    def _write_tree(self, batch: Batch, is_root: bool) -> bytes:
        if self._ready is None:
            return super()._write_tree(batch, is_root)
        lines = self._ready.tree_lines
        return batch.add("tree", lines) if lines or is_root else b""

    def _file_attrs(self) -> tuple[int, int, Mapping[bytes, EntryAttrs]]:
        return super()._file_attrs() if self._ready is None else self._ready[1:]


def _is_implicit(entry: EntryAttrs) -> bool:
    return (
        entry.mode in (None, attrs.FILE_MODE, attrs.EXEC_MODE)
        and not entry.xattrs
        and entry.kind is None
    )


def _tree_oid(batch: Batch, tree: Tree, is_root: bool) -> bytes:
    return batch.add_tree(tree) if tree or is_root else b""
