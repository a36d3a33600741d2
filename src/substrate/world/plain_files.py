"""The plain files of a layer: most of what commands leave, read in as few steps as can be.

A plain file has one name, no attributes of anybody's, no set-id bits, and takes the place of
such a file or of nothing. Whatever is unusual in any way is left to `changes`, which says what
each thing means.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Kind, ManyBlobWriter, Node
from substrate.model.paths import RelPath
from substrate.objects.directory import Directory as Known
from substrate.workspace.dirwalk import Directory
from substrate.workspace.exclude import METADATA_FILES, Exclusions
from substrate.workspace.layer import FILE_CAPABILITIES, OVERLAY_MARKS, LayerEntry
from substrate.world.origin import is_copy_of

#: Larger ones are read in pieces, by others.
_MOST_BYTES = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_OWN_NAMES = frozenset(os.fsencode(name) for name in METADATA_FILES)
#: So much content is held in memory at once.
_PORTION_BYTES = 4 << 20
#: A named tuple of as many values as it has fields, made without asking each for its default.
_new = tuple.__new__
_THEIRS = ("user.", *OVERLAY_MARKS, FILE_CAPABILITIES)


class _Read(NamedTuple):
    """One of them: all of its entry but the content's id, and the content."""

    path: RelPath
    old: Node
    mode: int
    in_place: bool
    is_marked: bool
    times: tuple[int, int]
    owner: tuple[int, int]
    content: bytes


class PlainFiles:
    """Reads them, directory by directory; contents go to `blobs`."""

    def __init__(self, xattr_prefix: bytes, exclusions: Exclusions, blobs: ManyBlobWriter) -> None:
        self._origin = os.fsdecode(xattr_prefix) + "origin"
        self._exclusions = exclusions
        self._blobs = blobs
        self._most_bytes = min(_MOST_BYTES, exclusions.size_cap_bytes)

    def read(
        self,
        directory: Directory,
        path: RelPath,
        known: Known | None,
        below: Directory | None,
        names: list[bytes],
    ) -> list[LayerEntry]:
        """Those of `names`, regular files of the directory at `path`, that are plain.

        `known` and `below`: the same directory in history and in the tree, if there is one.
        """
        found: list[LayerEntry] = []
        rest = iter(names)
        while portion := self._portion(directory, path, known, below, rest):
            found += self._kept(portion)
        return found

    def _portion(
        self,
        directory: Directory,
        path: RelPath,
        known: Known | None,
        below: Directory | None,
        names: Iterator[bytes],
    ) -> list[_Read]:
        """As many as may be held in memory; none: there are no more."""
        prefix = path + b"/" if path else b""
        here, tree = directory.fd, None if below is None else below.fd
        origin, most_bytes = self._origin, self._most_bytes
        any_rules = self._exclusions.may_exclude_files
        found: list[_Read] = []
        room = _PORTION_BYTES
        for name in names:
            full = RelPath(prefix + name)
            try:
                fd = os.open(name, _READ, dir_fd=here)
            except OSError:
                continue
            try:
                at = os.fstat(fd)
                mode, size = at.st_mode & 0o777, at.st_size
                if at.st_mode != stat.S_IFREG | mode or at.st_nlink > 1 or size > most_bytes:
                    continue
                if (any_rules or name in _OWN_NAMES) and self._is_left_out(full, size):
                    continue
                marks = os.listxattr(fd)
                if marks and self._is_marked_otherwise(marks):
                    continue
                old = ABSENT if known is None else known.node(name)
                in_place = False
                if tree is not None:
                    stood = _stood(tree, name)
                    if stood is not None and not _is_single_file(stood):
                        continue
                    if stood is not None and origin in marks:
                        in_place = is_copy_of(os.getxattr(fd, origin), tree, name)
                if old.kind is not Kind.FILE and old is not ABSENT:
                    continue
                data = os.read(fd, size + 1)
                if len(data) != size:
                    continue
            except OSError:
                continue
            finally:
                os.close(fd)
            times, owner = (at.st_atime_ns, at.st_mtime_ns), (at.st_uid, at.st_gid)
            found.append(
                _new(_Read, (full, old, mode, in_place, origin in marks, times, owner, data))
            )
            room -= size
            if room < 0:
                break
        return found

    def _kept(self, portion: list[_Read]) -> list[LayerEntry]:
        # What is renamed in is not read again; what is written to where it stands is.
        soon = any(one.in_place for one in portion)
        oids = self._blobs.add_blobs([one.content for one in portion], are_read_soon=soon)
        return [
            _new(
                LayerEntry,
                (path, old, _new(Node, (Kind.FILE, mode, oid, ())), False, True, False, in_place,
                 is_marked, times, owner),
            )
            for (path, old, mode, in_place, is_marked, times, owner, _), oid in zip(
                portion, oids, strict=True
            )
        ]  # fmt: skip

    def _is_left_out(self, path: RelPath, size: int) -> bool:
        return self._exclusions.own_reason(path, is_dir=False, size=size) is not None

    def _is_marked_otherwise(self, marks: list[str]) -> bool:
        """By more than where it was copied from; labels of the system's are no marks."""
        return any(mark != self._origin and mark.startswith(_THEIRS) for mark in marks)


def _is_single_file(at: os.stat_result) -> bool:
    return stat.S_ISREG(at.st_mode) and at.st_nlink == 1


def _stood(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
