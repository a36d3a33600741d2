"""First use of a large git repository: what its index explains is taken over by the directory.

    this process     read the index ─► fork ─► link the packs ─────────► answers ─► the rest: scan
    children                            └─► sizes of the blobs, and a look at every directory

The state is the same as the ordinary scan finds, only sooner. Whatever is unusual about the
repository as a whole gives None, whatever is about one directory leaves that to the scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.adopt import adopt_objects
from substrate.objects.attrs import EntryAttrs
from substrate.objects.borrow import KnownBlob, blobs_are_raw, read_index
from substrate.objects.directory import ReadyDirectory
from substrate.objects.git import UserGit
from substrate.objects.git_index import UnusualIndexError
from substrate.objects.index_table import IndexTable, Row, columns, read_table
from substrate.objects.store import ObjectStore
from substrate.objects.vouched import Vouched, look_at
from substrate.system.forked import Forked, Portions, by_weight, can_fork, fork, processors
from substrate.workspace.exclude import Exclusions
from substrate.workspace.listing import HAS_DESCRIPTORS, Tree
from substrate.workspace.locate import Workspace
from substrate.workspace.stat_cache import DirRecord

#: Below this the ordinary way is as quick.
WORTH_FORKING_FILES = 3000
_MOST_CHILDREN = 4
_CHUNK_WEIGHT = 300
#: Opening a directory costs about as much as looking at so many names.
_DIRECTORY_WEIGHT = 8

#: Whether the sizes were compared, the numbers of the rows with a wrong one, the directories.
_Answer = tuple[bool, list[int], list[tuple[object, ...]]]


class FirstLook(NamedTuple):
    """What was found out; all blobs named here are in the store."""

    directories: dict[str, Vouched]
    #: The vouched-for files of the other directories.
    known: dict[RelPath, KnownBlob]

    def records(self) -> dict[str, DirRecord]:
        return {path: DirRecord._make(one.record) for path, one in self.directories.items()}

    def nodes(self, paths: Iterable[str]) -> dict[RelPath, Node]:
        """The nodes of these directories themselves, but for the workspace's own."""
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
    store: ObjectStore,
    *,
    worth_files: int = WORTH_FORKING_FILES,
) -> FirstLook | None:
    """Look at the whole workspace through its index; None if the ordinary way must be gone."""
    git_dir, common_dir, root = workspace.git_dir, workspace.git_common_dir, workspace.root
    if git_dir is None or common_dir is None or not _possible(exclusions):
        return None
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
    with Tree(root) as tree:
        shared = _Shared(tree, table, exclusions, UserGit(git_dir, root), before_ns)
        return _look(shared, common_dir / "objects", store)


def _possible(exclusions: Exclusions) -> bool:
    able = can_fork() and HAS_DESCRIPTORS and hasattr(os, "listxattr") and hasattr(os, "fchdir")
    return able and not exclusions.may_exclude_files


class _Shared:
    """What the children inherit."""

    def __init__(
        self, tree: Tree, table: IndexTable, exclusions: Exclusions, git: UserGit, before_ns: int
    ) -> None:
        self.tree = tree
        self.table = table
        self.exclusions = exclusions
        self.git = git
        self.before_ns = before_ns
        self.chunks = _chunks(table)
        #: The first portion are the sizes, because git takes long to say them.
        self.portions = Portions(len(self.chunks) + 1)

    def in_child(self) -> _Answer:
        compared = False
        wrong: list[int] = []
        looks: list[tuple[object, ...]] = []
        for number in self.portions.claims():
            if number == 0:
                compared, wrong = True, self._wrong_sizes()
                continue
            for directory in self.chunks[number - 1]:
                rows = self.table.rows_of(directory)
                path = os.fsdecode(directory[:-1])
                look = look_at(self.tree, path, rows, self.exclusions, self.before_ns)
                if look is not None:
                    looks.append((*look[:-2], tuple(look.file_modes), look.record))
        return compared, wrong, looks

    def _wrong_sizes(self) -> list[int]:
        """Rows whose file was not as long as its blob: something was converted on the way."""
        sizes, oids = self.table.sizes_and_ids()
        return self.git.other_sizes(oids, sizes)


def _chunks(table: IndexTable) -> list[list[bytes]]:
    """The directories in at most some hundred portions of about as many entries."""
    weights = {path: files + _DIRECTORY_WEIGHT for path, files in table.weights().items()}
    return by_weight(weights, _CHUNK_WEIGHT)


def _look(shared: _Shared, user_objects: Path, store: ObjectStore) -> FirstLook | None:
    count = max(1, min(_MOST_CHILDREN, processors()))
    children = [fork(shared.in_child) for _ in range(count)]
    answers: list[_Answer] = []
    try:
        _, oids = shared.table.sizes_and_ids()
        missing = adopt_objects(user_objects, store, set(oids))
    finally:
        shared.portions.close()
        answers += filter(None, map(_answered, children))
    if not any(compared for compared, _, _ in answers):
        return None
    numbers = {number for _, found, _ in answers for number in found}
    if missing:
        numbers.update(number for number, oid in enumerate(oids) if oid in missing)
    wrong = _wrong(shared.table, numbers)
    looks = {str(look[0]): Vouched._make(look) for _, _, found in answers for look in found}
    doubtful = {os.fsdecode(directory[:-1]) for directory, _ in wrong}
    reached = _reached(shared.tree, looks)
    sound = {path: look for path, look in reached.items() if path not in doubtful}
    return FirstLook(sound, _known_elsewhere(shared, sound, wrong))


def _wrong(table: IndexTable, numbers: set[int]) -> set[tuple[bytes, Row]]:
    """The entries of these numbers, with their directories."""
    if not numbers:
        return set()
    return {entry for number, entry in enumerate(table.all_rows()) if number in numbers}


def _answered(child: Forked | None) -> _Answer | None:
    return cast("_Answer | None", child.answer()) if child is not None else None


def _reached(tree: Tree, looks: dict[str, Vouched]) -> dict[str, Vouched]:
    """Those directories that really stand where their path says: no link was on the way."""
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
    """What the index vouches for in directories that it does not explain whole."""
    known: dict[RelPath, KnownBlob] = {}
    for directory in shared.table.directories:
        if os.fsdecode(directory[:-1]) in sound:
            continue
        for row in shared.table.rows_of(directory):
            entry = columns([row])
            if entry is None or (directory, row) in wrong:
                continue
            _, (oid,), (mode,), (size,), (mtime_ns,), (ctime_ns,), (ino,) = entry
            if mtime_ns < shared.before_ns and ino:
                blob = KnownBlob(oid, mode, size, mtime_ns, ctime_ns, ino)
                known[RelPath(directory + row[1])] = blob
    return known
