"""First use of a large project: take over, by directory, what its git index explains.

    this process     read the index ─► fork ─► sizes, link packs ─► answers ─► the rest: scan
    children                            └─► read every directory ──────┘
                                                                       └─► for the stat cache

The children read the files if there is no repository, if thousands of its objects are not packed,
or if the index is stale (a fresh copy of a project: every inode differs). The result is the same
as that of the ordinary scan, only faster. An unusual project gives None; an unusual directory is
left to the scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, cast

from substrate.errors import SubstrateError
from substrate.model import Kind, Node, ReadyBlob, RelPath
from substrate.objects.git import UserGit
from substrate.objects.import_user.copy_user_objects import LINKED_LOOSE_MAX, adopt_objects
from substrate.objects.import_user.import_user_index import KnownBlob, blobs_are_raw
from substrate.objects.import_user.indexed_files import Later, Vouched, look_at
from substrate.objects.import_user.unindexed_files import Reader, directories_below
from substrate.objects.index import (
    ROW_ID,
    IndexTable,
    Row,
    UnusualIndexError,
    columns,
    entries_in,
    read_index,
    read_table,
)
from substrate.objects.snapshots import EntryAttrs, ReadyDirectory
from substrate.objects.store import Batch, ObjectDir, with_alternates
from substrate.system.process import Forked, Portions, by_weight, can_fork, fork, processors
from substrate.workspace import Exclusions, Workspace
from substrate.workspace.paths import BY_DESCRIPTOR, Tree
from substrate.workspace.scan import UNSIGNED, DirRecord, StatCache

#: Below this many files the ordinary scan is as fast.
WORTH_FORKING_FILES = 3000
_MOST_CHILDREN = 4
_CHUNK_WEIGHT = 300
#: Opening a directory takes about as long as checking this many names.
_DIRECTORY_WEIGHT = 8
#: About this many files are checked to see whether the index is stale.
_SAMPLE = 32

#: The directories, the blobs read in them, and whether all directories are done.
_Answer = tuple[list[tuple[object, ...]], list[ReadyBlob], bool]


class FirstLook(NamedTuple):
    """The result; all blobs named here are in the store or in the batch."""

    directories: dict[str, Vouched]
    #: Files in the other directories that the index vouches for.
    known: dict[RelPath, KnownBlob]
    #: The children that still compute data for the stat cache: see `complete`.
    children: list[Forked]

    def complete(self, cache: StatCache) -> None:
        """Wait for the children, once, and store in the cache what they computed since."""
        found: dict[str, tuple[bytes, bytes]] = {}
        for child in self.children:
            late = cast("dict[str, tuple[bytes, bytes]] | None", child.late_answer())
            found.update(late or {})
        for path, record in list(cache.dirs.items()):
            if record.signature != UNSIGNED:
                continue
            if path in found:
                signature, payload = found[path]
                cache.put(path, record._replace(signature=signature, payload=payload))
            else:
                cache.drop(path)  # a child was killed: the next scan reads the directory

    def records(self) -> dict[str, DirRecord]:
        return {path: DirRecord._make(one.record) for path, one in self.directories.items()}

    def nodes(self, paths: Iterable[str]) -> dict[RelPath, Node]:
        """The nodes of these directories themselves, except the workspace's root."""
        found = ((path, self.directories[path]) for path in paths if path)
        return {
            RelPath(os.fsencode(path)): Node(Kind.DIRECTORY, one.mode, b"", one.xattrs)
            for path, one in found
        }

    def ready(self, paths: Iterable[str]) -> dict[RelPath, ReadyDirectory]:
        return {RelPath(os.fsencode(path)): _ready(self.directories[path]) for path in paths}


def _ready(one: Vouched) -> ReadyDirectory:
    file_mode, exec_mode, exceptions = one.file_modes
    entries = {name: EntryAttrs(mode) for name, mode in exceptions.items()}
    return ReadyDirectory(one.tree_lines, file_mode, exec_mode, entries)


def first_look(
    workspace: Workspace,
    exclusions: Exclusions,
    batch: Batch,
    *,
    worth_files: int = WORTH_FORKING_FILES,
) -> FirstLook | None:
    """Read the whole workspace at once; None if the ordinary scan must do it.

    Contents that were read go to the batch, the user's objects to its store.
    """
    if not _possible(exclusions):
        return None
    with Tree(workspace.root) as tree:
        if workspace.git_dir is None or workspace.git_common_dir is None:
            weights = directories_below(tree.root, tree.device, exclusions)
            if sum(weights.values()) < worth_files:
                return None
            table = IndexTable.without_entries(weights)
            return _look(_Shared(tree, table, exclusions, weights), None, batch)
        git_dir, common_dir, root = workspace.git_dir, workspace.git_common_dir, workspace.root
        try:
            data, before_ns = read_index(git_dir / "index")
            table = read_table(data)
        except (OSError, UnusualIndexError):
            return None
        if table.count < worth_files:
            return None
        tracked = table.paths_named(b".gitattributes")
        directories = {directory.rstrip(b"/") for directory in table.directories}
        if not blobs_are_raw(git_dir, common_dir, root, directories, tracked):
            return None
        objects = common_dir / "objects"
        shared = _Shared(tree, table, exclusions, table.weights())
        index = _Vouching(UserGit(git_dir, root), before_ns, _many_loose(table, objects))
        if _is_stale(root, table):
            index = index.for_nothing(table, objects, batch)
        shared.index = index
        return _look(shared, objects, batch)


def is_large(
    workspace: Workspace, exclusions: Exclusions, *, files: int = WORTH_FORKING_FILES
) -> bool:
    """Whether a first look takes so long that the user should not wait for it; a quick check."""
    if workspace.git_dir is not None and entries_in(workspace.git_dir / "index") >= files:
        return True
    with Tree(workspace.root) as tree:
        found = directories_below(tree.root, tree.device, exclusions, enough_files=files)
    return sum(found.values()) >= files


def _possible(exclusions: Exclusions) -> bool:
    able = can_fork() and BY_DESCRIPTOR and hasattr(os, "listxattr") and hasattr(os, "fchdir")
    return able and not exclusions.may_exclude_files


class _Vouching(NamedTuple):
    """What the user's index can vouch for."""

    git: UserGit
    #: Files changed at this time or later may have changed after the index was written.
    before_ns: int = 0
    #: Only entries with these blobs are usable; None: all are.
    packed: set[bytes] | None = None
    #: The user's blobs that are already in our store.
    ours: frozenset[bytes] = frozenset()

    def for_nothing(self, table: IndexTable, user_objects: Path, batch: Batch) -> _Vouching:
        """For an index without usable entries: most files are still blobs in the user's packs."""
        _, oids = table.sizes_and_ids()
        wanted = set(oids) if self.packed is None else self.packed
        try:
            missing = adopt_objects(user_objects, batch.store, wanted)
        except SubstrateError:  # git is not installed
            missing = wanted
        return self._replace(packed=set(), ours=frozenset(wanted - missing))

    def vouches_for(self, oid: bytes) -> bool:
        return self.packed is None or oid in self.packed

    def other_sizes(self, oids: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
        """Entries whose file and blob differ in length: the content was converted."""
        if self.packed is None:
            return self.git.other_sizes(oids, sizes)
        numbers = [number for number, oid in enumerate(oids) if oid in self.packed]
        if not numbers:
            return []
        found = self.git.other_sizes([oids[n] for n in numbers], [sizes[n] for n in numbers])
        return [numbers[at] for at in found]


def _is_stale(root: Path, table: IndexTable) -> bool:
    """Whether most files of a sample are not those that the index saw, as in a fresh copy."""
    directories = list(table.directories)
    same = seen = 0
    for directory in directories[:: max(1, len(directories) // _SAMPLE)]:
        entry = columns(table.rows_of(directory)[:1])
        if entry is None or not entry.names:
            continue
        try:
            at = os.lstat(os.path.join(os.fsencode(root), directory + entry.names[0]))
        except OSError:
            continue
        seen += 1
        same += at.st_ino & 0xFFFFFFFF == entry.inos[0]
    return same < seen / 2


def _many_loose(table: IndexTable, user_objects: Path) -> set[bytes] | None:
    """The blobs in packs, if so many others are loose that reading the files is faster."""
    places = [ObjectDir(path) for path in with_alternates(str(user_objects))]
    if not any(place.has_many_loose() for place in places):
        return None
    _, oids = table.sizes_and_ids()
    packed: set[bytes] = set()
    for pack in [pack for place in places for pack in place.packs.values()]:
        packed |= pack.index.held(set(oids))
    return packed if len(set(oids) - packed) > LINKED_LOOSE_MAX else None


class _Shared:
    """What the children inherit."""

    def __init__(
        self, tree: Tree, table: IndexTable, exclusions: Exclusions, weights: dict[bytes, int]
    ) -> None:
        self.tree = tree
        self.table = table
        self.exclusions = exclusions
        #: None without a repository.
        self.index: _Vouching | None = None
        #: Separate in each child.
        self.later = Later()
        self.chunks = _chunks(weights)
        self.portions = Portions(len(self.chunks))

    @property
    def are_files_read(self) -> bool:
        return self.index is None or self.index.packed is not None

    def in_child(self) -> _Answer:
        looks: list[tuple[object, ...]] = []
        self.later = Later()
        ours = self.index.ours if self.index is not None else ()
        reader = Reader(self.exclusions, ours) if self.are_files_read else None
        for number in self.portions.claims():
            for directory in self.chunks[number]:
                look = self._look_at(directory, reader)
                if look is not None:
                    looks.append((*look[:-2], tuple(look.file_modes), look.record))
            if reader is not None and reader.is_full:
                return looks, reader.blobs, False
        return looks, reader.blobs if reader is not None else [], True

    def _look_at(self, directory: bytes, reader: Reader | None) -> Vouched | None:
        rows, before_ns = self.table.rows_of(directory), 0
        if self.index is not None:
            before_ns = self.index.before_ns
            if self.index.packed is not None:
                rows = [row for row in rows if row[0][ROW_ID] in self.index.packed]
        path = os.fsdecode(directory[:-1])
        return look_at(self.tree, path, rows, self.exclusions, before_ns, reader, later=self.later)

    def when_answered(self) -> dict[str, tuple[bytes, bytes]]:
        return self.later.records()


def _chunks(files: dict[bytes, int]) -> list[list[bytes]]:
    """The directories in at most a few hundred chunks with about the same number of entries."""
    weights = {path: count + _DIRECTORY_WEIGHT for path, count in files.items()}
    return by_weight(weights, _CHUNK_WEIGHT)


def _look(shared: _Shared, user_objects: Path | None, batch: Batch) -> FirstLook | None:
    children: list[Forked] = []
    found = None
    try:
        found = _looked(shared, user_objects, batch, children)
    finally:
        if found is None:
            FirstLook({}, {}, children).complete(StatCache())
    return found


def _looked(
    shared: _Shared, user_objects: Path | None, batch: Batch, children: list[Forked]
) -> FirstLook | None:
    numbers: set[int] = set()
    with closing(shared.portions):
        started = _start(shared)
        children += started
        try:
            if shared.index is not None and user_objects is not None:
                numbers = _doubtful(shared.table, shared.index, user_objects, batch)
        except SubstrateError:
            return None  # git is not installed: the ordinary scan reports it
        finally:
            answers = _answers(started)
        _read_on(shared, answers, batch, children)
    if not answers:
        return None
    wrong = _wrong(shared.table, numbers)
    looks = {str(look[0]): Vouched._make(look) for answer in answers for look in answer[0]}
    doubtful = {os.fsdecode(directory[:-1]) for directory, _ in wrong}
    reached = _reached(shared.tree, looks)
    sound = {path: look for path, look in reached.items() if path not in doubtful}
    return FirstLook(sound, _known_elsewhere(shared, sound, wrong), children)


def _doubtful(table: IndexTable, index: _Vouching, user_objects: Path, batch: Batch) -> set[int]:
    """Adopt the blobs; returns the numbers of rows whose blob is missing or is not the file."""
    sizes, oids = table.sizes_and_ids()
    numbers = set(index.other_sizes(oids, sizes))
    wanted = set(oids) if index.packed is None else index.packed
    missing = adopt_objects(user_objects, batch.store, wanted)
    if missing:
        numbers.update(number for number, oid in enumerate(oids) if oid in missing)
    return numbers


def _start(shared: _Shared) -> list[Forked]:
    count = max(1, min(_MOST_CHILDREN, processors()))
    return list(filter(None, (fork(shared.in_child, shared.when_answered) for _ in range(count))))


def _answers(children: list[Forked]) -> list[_Answer]:
    """The answers of all children that gave one."""
    said = (cast("_Answer | None", child.early_answer()) for child in children)
    return list(filter(None, said))


def _read_on(shared: _Shared, answers: list[_Answer], batch: Batch, children: list[Forked]) -> None:
    """Keep what was read, and start new children while the last ones stopped for lack of memory."""
    last = answers
    while True:
        for *_, blobs, _ in last:
            batch.add_ready(blobs, [])
            blobs.clear()
        if not last or any(answer[-1] for answer in last):
            return
        started = _start(shared)
        children += started
        last = _answers(started)
        answers += last


def _wrong(table: IndexTable, numbers: set[int]) -> set[tuple[bytes, Row]]:
    """The entries of these numbers, with their directories."""
    if not numbers:
        return set()
    return {entry for number, entry in enumerate(table.all_rows()) if number in numbers}


def _reached(tree: Tree, looks: dict[str, Vouched]) -> dict[str, Vouched]:
    """The directories that really are at their path: reached without a symbolic link."""
    reached: dict[str, Vouched] = {}
    for path in sorted(looks):
        above, _, name = path.rpartition("/")
        if not path:
            same = True
        elif above in reached:
            same = reached[above].subdirs.get(name) == looks[path].ino
        else:
            same = _inode(tree, path) == looks[path].ino
        if same:
            reached[path] = looks[path]
    return reached


def _inode(tree: Tree, path: str) -> int:
    try:
        with tree.enter(path) as directory:
            return directory.own()[2]
    except OSError:
        return -1


def _known_elsewhere(
    shared: _Shared, sound: dict[str, Vouched], wrong: set[tuple[bytes, Row]]
) -> dict[RelPath, KnownBlob]:
    """The files that the index vouches for in directories that it explains only in part."""
    known: dict[RelPath, KnownBlob] = {}
    index = shared.index
    if index is None:
        return known
    for directory in shared.table.directories:
        if os.fsdecode(directory[:-1]) in sound:
            continue
        for row in shared.table.rows_of(directory):
            entry = columns([row])
            if entry is None or (directory, row) in wrong:
                continue
            if not index.vouches_for(entry.oids[0]):
                continue
            _, (oid,), (mode,), (size,), (mtime_ns,), (ctime_ns,), (ino,) = entry
            if mtime_ns < index.before_ns and ino:
                blob = KnownBlob(oid, mode, size, mtime_ns, ctime_ns, ino)
                known[RelPath(directory + row[1])] = blob
    return known
