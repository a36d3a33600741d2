"""The plain files of a layer: most of what commands leave, read in as few steps as possible.

A plain file has one name, no extended attributes that history records, no set-id bits, and
replaces such a file or nothing. Anything unusual is left to `changes`, which interprets it.

The file that it replaces is read with it, while its directory is open: applying the change needs
to know what is there.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from typing import NamedTuple, cast

from substrate.model import ABSENT, Kind, ManyBlobWriter, Node, ReadyBlob, RelPath
from substrate.objects.snapshots import Directory as Known
from substrate.system.files import RECORDED
from substrate.system.process import can_fork, processors, share
from substrate.workspace import METADATA_FILES, Exclusions
from substrate.workspace.apply import OVERLAY_MARKS, LayerEntry
from substrate.workspace.paths import Directory, Seen, SeenRow, as_row, from_row, read_open_file
from substrate.world.layer.copyup_origin import is_copy_of

#: Larger files are read in pieces, elsewhere.
_MOST_BYTES = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_OWN_NAMES = frozenset(os.fsencode(name) for name in METADATA_FILES)
#: How much content is held in memory at the same time; by a child, until it has answered.
_PORTION_BYTES = 4 << 20
_CHILD_BYTES = 64 << 20
#: With fewer files a child costs more than it saves; and the size and number of its portions.
WORTH_A_FORK = 800
_CHUNK = 50
_MOST_CHUNKS = 500
#: Makes a named tuple with all its fields given; faster than its constructor.
_new = tuple.__new__
_THEIRS = (*RECORDED, *OVERLAY_MARKS)


class Group(NamedTuple):
    """Regular files of one directory of the layer."""

    path: RelPath
    directory: Directory
    #: The same directory in history and in the tree, if there is one.
    known: Known | None
    below: Directory | None
    names: list[bytes]

    def close(self) -> None:
        self.directory.close()
        if self.below is not None:
            self.below.close()


class Moved(NamedTuple):
    entries: list[LayerEntry]
    #: Names of files that are not plain.
    rest: list[bytes]


#: One file, as it was found: the index of its name, its mode, whether it was written in place,
#: whether it has marks, its times, its owner. Plain values: they pass between processes.
_File = tuple[int, int, bool, bool, tuple[int, int], tuple[int, int]]
_IN_PLACE = 2
#: Part of a group, by the group's index: from the first name to before the last.
_Chunk = tuple[int, int, int]
#: What a child reports for one chunk: its number, the files, their blobs, contents still needed,
#: and what the files replace, by the index of the name.
_Answer = tuple[int, list[_File], list[ReadyBlob], list[bytes], list[tuple[int, SeenRow]]]


class _Portion(NamedTuple):
    """Plain files with their contents, and the files that they replace."""

    files: list[_File]
    contents: list[bytes]
    stood: list[tuple[int, Seen]]


class PlainFiles:
    """Reads plain files of several directories together; contents go to `blobs`."""

    def __init__(self, xattr_prefix: bytes, exclusions: Exclusions, blobs: ManyBlobWriter) -> None:
        self._origin = os.fsdecode(xattr_prefix) + "origin"
        self._exclusions = exclusions
        self._blobs = blobs
        self._most_bytes = min(_MOST_BYTES, exclusions.size_cap_bytes)
        #: See `LayerDiff`.
        self.stood: dict[RelPath, Seen] = {}

    def read(self, groups: list[Group]) -> list[list[LayerEntry]]:
        """The plain files of each group. If there are many, a child reads some of them."""
        total = sum(len(group.names) for group in groups)
        if total < WORTH_A_FORK or processors() < 2 or not can_fork():
            return [self._entries(one, 0, len(one.names)) for one in groups]
        return self._read_by_two(groups, _chunks(groups, max(_CHUNK, total // _MOST_CHUNKS)))

    def read_beyond(self, directory: Directory, path: RelPath, names: list[bytes]) -> Moved:
        """The plain files in a directory that history excludes and that is applied as a whole:
        their contents are not read."""
        prefix = path + b"/" if path else b""
        found: list[LayerEntry] = []
        rest: list[bytes] = []
        for name in names:
            at = _without_marks(directory, name)
            if at is None:
                rest.append(name)
                continue
            times, owner = (at.st_atime_ns, at.st_mtime_ns), (at.st_uid, at.st_gid)
            new = _new(Node, (Kind.FILE, at.st_mode & 0o777, b"", ()))
            found.append(
                _new(
                    LayerEntry,
                    (prefix + name, ABSENT, new, True, True, False, False, False, times, owner),
                )
            )
        return Moved(found, rest)

    def _read_by_two(self, groups: list[Group], chunks: list[_Chunk]) -> list[list[LayerEntry]]:
        done: dict[int, list[LayerEntry]] = {}

        def here(number: int) -> None:
            group, start, stop = chunks[number]
            done[number] = self._entries(groups[group], start, stop)

        answers = share(
            len(chunks), 1, lambda numbers: self._for_parent(groups, chunks, numbers), here
        )
        said = cast("list[_Answer]", answers[0] if answers else [])
        for number, files, blobs, contents, stood in said:
            theirs = groups[chunks[number][0]]
            self._blobs.add_ready(blobs, contents)
            self._note(theirs, [(name, from_row(row)) for name, row in stood])
            done[number] = _as_entries(theirs, files, [oid for oid, *_ in blobs])
        found: list[list[LayerEntry]] = [[] for _ in groups]
        for number, (which, start, stop) in enumerate(chunks):
            # What the child did not report is read here.
            entries = done.get(number)
            found[which] += (
                self._entries(groups[which], start, stop) if entries is None else entries
            )
        return found

    def _for_parent(
        self, groups: list[Group], chunks: list[_Chunk], claimed: Iterator[int]
    ) -> list[_Answer]:
        answers: list[_Answer] = []
        room = _CHILD_BYTES
        for number in claimed:
            which, start, stop = chunks[number]
            numbers = iter(range(start, stop))
            files, contents, stood = self._files(groups[which], numbers, sys.maxsize)
            soon = contents if any(one[_IN_PLACE] for one in files) else []
            rows = [(name, row) for name, seen in stood if (row := as_row(seen)) is not None]
            answers.append((number, files, self._blobs.readied(contents), soon, rows))
            room -= sum(map(len, contents))
            if room < 0:
                break
        return answers

    def _entries(self, group: Group, start: int, stop: int) -> list[LayerEntry]:
        found: list[LayerEntry] = []
        numbers = iter(range(start, stop))
        while True:
            files, contents, stood = self._files(group, numbers, _PORTION_BYTES)
            if not files:
                return found
            self._note(group, stood)
            # A file that is renamed into place is not read again; a file that is written in place
            # is.
            soon = any(one[_IN_PLACE] for one in files)
            oids = self._blobs.add_blobs(contents, are_read_soon=soon)
            found += _as_entries(group, files, oids)

    def _note(self, group: Group, stood: list[tuple[int, Seen]]) -> None:
        prefix, names = group.path + b"/" if group.path else b"", group.names
        self.stood.update([(RelPath(prefix + names[number]), seen) for number, seen in stood])

    def _files(self, group: Group, numbers: Iterator[int], room: int) -> _Portion:
        """Plain files and their contents, not many more bytes than `room`; none: no more files."""
        prefix = group.path + b"/" if group.path else b""
        names, known, below = group.names, group.known, group.below
        here, tree = group.directory.fd, None if below is None else below.fd
        origin, most_bytes = self._origin, self._most_bytes
        any_rules = self._exclusions.may_exclude_files
        found: list[_File] = []
        contents: list[bytes] = []
        standing: list[int] = []
        for number in numbers:
            name, stood = names[number], None
            try:
                fd = os.open(name, _READ, dir_fd=here)
            except OSError:
                continue
            try:
                at = os.fstat(fd)
                mode, size = at.st_mode & 0o777, at.st_size
                if at.st_mode != stat.S_IFREG | mode or at.st_nlink > 1 or size > most_bytes:
                    continue
                if (any_rules or name in _OWN_NAMES) and self._is_left_out(prefix + name, size):
                    continue
                marks = os.listxattr(fd)
                if marks and self._is_marked_otherwise(marks):
                    continue
                in_place = False
                if tree is not None:
                    stood = _stood(tree, name)
                    if stood is not None and not _is_single_file(stood):
                        continue
                    if stood is not None and origin in marks:
                        in_place = is_copy_of(os.getxattr(fd, origin), tree, name)
                if known is not None and not known.may_be_plain(name):
                    continue
                data = os.read(fd, size + 1)
                if len(data) != size:
                    continue
            except OSError:
                continue
            finally:
                os.close(fd)
            times, owner = (at.st_atime_ns, at.st_mtime_ns), (at.st_uid, at.st_gid)
            found.append((number, mode, in_place, origin in marks, times, owner))
            contents.append(data)
            if stood is not None and stood.st_size <= most_bytes:
                standing.append(number)
            room -= size
            if room < 0:
                break
        return _Portion(found, contents, [] if tree is None else _seen(tree, names, standing))

    def _is_left_out(self, path: bytes, size: int) -> bool:
        return self._exclusions.own_reason(RelPath(path), is_dir=False, size=size) is not None

    def _is_marked_otherwise(self, marks: list[str]) -> bool:
        """Whether it has marks besides its origin; the system's own labels are not marks."""
        return any(mark != self._origin and mark.startswith(_THEIRS) for mark in marks)


def _as_entries(group: Group, files: list[_File], oids: list[bytes]) -> list[LayerEntry]:
    prefix = group.path + b"/" if group.path else b""
    names, known = group.names, group.known
    return [
        _new(
            LayerEntry,
            (prefix + names[number], ABSENT if known is None else known.node(names[number]),
             _new(Node, (Kind.FILE, mode, oid, ())), False, True, False, in_place, is_marked,
             times, owner),
        )
        for (number, mode, in_place, is_marked, times, owner), oid in zip(files, oids, strict=True)
    ]  # fmt: skip


def _chunks(groups: list[Group], size: int) -> list[_Chunk]:
    return [
        (number, start, min(start + size, len(group.names)))
        for number, group in enumerate(groups)
        for start in range(0, len(group.names), size)
    ]


def _without_marks(directory: Directory, name: bytes) -> os.stat_result | None:
    """The stat of a plain file that has no attributes at all; None: anything else."""
    try:
        fd = os.open(name, _READ, dir_fd=directory.fd)
    except OSError:
        return None
    try:
        at = os.fstat(fd)
        is_plain = at.st_mode == stat.S_IFREG | at.st_mode & 0o777 and at.st_nlink == 1
        return at if is_plain and not os.listxattr(fd) else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_single_file(at: os.stat_result) -> bool:
    return stat.S_ISREG(at.st_mode) and at.st_nlink == 1


def _stood(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _seen(directory: int, names: list[bytes], numbers: list[int]) -> list[tuple[int, Seen]]:
    """The files that are there now, without those that are gone or are being changed."""
    found = []
    for number in numbers:
        try:
            fd = os.open(names[number], _READ, dir_fd=directory)
        except OSError:
            continue
        try:
            seen = read_open_file(fd)
        except OSError:
            continue
        finally:
            os.close(fd)
        if seen is not None:
            found.append((number, seen))
    return found
