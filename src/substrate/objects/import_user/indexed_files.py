"""Compare a directory with the user's index once, column by column.

    names, sizes, times, inodes on disk  ==  those in the index      then the ids are right as well
    nothing young, no user xattr, no name that git forbids           any modes

This takes one comparison per column instead of one per file: first use checks every file of the
project here. Files that differ in any way, or are not in the index, are read, or left to the scan.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from operator import itemgetter
from typing import NamedTuple

from substrate.model import RelPath
from substrate.objects.import_user.unindexed_files import Reader
from substrate.objects.index import NO_COLUMNS, ROW_ID, Columns, Row, columns
from substrate.objects.snapshots import (
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    MODE_TEXT,
    attrs,
    is_forbidden_name,
)
from substrate.system import clock
from substrate.system.files import RECORDED
from substrate.workspace import METADATA_FILES, Exclusions
from substrate.workspace.paths import (
    ListedDirectory,
    Listing,
    RawEntry,
    Tree,
    is_racy,
    settled_before_ns,
    signature_of,
)
from substrate.workspace.scan import UNSIGNED, DirRecord, Entry, Xattrs, pack_payload

_Numbers = tuple[int, ...]
_FILE_TYPE = 0o170000
_IMPLICIT = frozenset({attrs.FILE_MODE, attrs.EXEC_MODE})
_GIT_MODES = frozenset({MODE_FILE, MODE_EXEC})


_NAME = itemgetter(0)
#: A directory's own mode, ctime_ns, ino and attributes.
_Own = tuple[int, int, int, Xattrs]
#: The most files that a child keeps in memory for later: some hundred bytes per file.
_LATER_FILES = 50_000

NO_EXCEPTIONS: Mapping[bytes, int] = {}


class FileModes(NamedTuple):
    """The files' part of an attrs record: its default modes, and the names with another mode."""

    file_mode: int = attrs.FILE_MODE
    exec_mode: int = attrs.EXEC_MODE
    exceptions: Mapping[bytes, int] = NO_EXCEPTIONS


class Vouched(NamedTuple):
    """The result for one directory; plain values, so that a forked child can send it."""

    path: str
    mode: int
    xattrs: Xattrs
    ino: int
    #: Its recorded subdirectories, with their inodes.
    subdirs: dict[str, int]
    file_count: int
    #: The lines of its tree for files and links, in git's order.
    tree_lines: bytes
    file_modes: FileModes
    #: Its record for the stat cache.
    record: tuple[object, ...]


class Later:
    """Results of one child that are complete for its parent, but not for the stat cache: the rest
    is computed after the parent has its answer."""

    def __init__(self) -> None:
        self._looks: list[tuple[_Look, _Own]] = []
        self._room_files = _LATER_FILES

    def take(self, look: _Look, own: _Own) -> bool:
        """Defer the rest of this result; False if there is no room."""
        if self._room_files <= 0:
            return False
        self._room_files -= len(look.names)
        self._looks.append((look, own))
        return True

    def records(self) -> dict[str, tuple[bytes, bytes]]:
        """The signature and the payload of each deferred directory."""
        return {
            look.path: (signature_of(look.listing), look.payload(own)) for look, own in self._looks
        }


class _OrdinaryError(Exception):
    """The directory is unusual: the ordinary scan must read it."""


def look_at(
    tree: Tree,
    path: str,
    rows: list[Row],
    exclusions: Exclusions,
    written_before_ns: int,
    reader: Reader | None = None,
    *,
    later: Later | None = None,
) -> Vouched | None:
    """Compare the directory at `path` with its index entries; None if they explain nothing.

    `reader` reads what they do not explain. If some files are left over, the record has no
    signature. A record that lacks only payload and signature, which come `later`, is `UNSIGNED`.

    Files changed at `written_before_ns` or later may have changed after the index saw them.
    Changes the current directory: for a forked child only. The directory is opened by its whole
    path, so the caller must compare the inodes of the directories above.
    """
    try:
        directory = tree.enter_by_path(path)
    except OSError:
        return None
    with directory:
        try:
            now_ns = clock.now_ns()
            before_ns = min(written_before_ns, settled_before_ns(now_ns))
            look = _Look(path, directory.listing_from_within(), exclusions)
            if not look.is_explained(columns(rows), before_ns):
                look.keep_explained(rows, before_ns, reader, now_ns)
            return look.vouched(directory, now_ns, later)
        except (OSError, _OrdinaryError):
            return None


class _Look:
    def __init__(self, path: str, listing: Listing, exclusions: Exclusions) -> None:
        if not listing.signature:
            raise _OrdinaryError
        self.path = path
        self.listing = listing
        self.signature = listing.signature
        self.size_cap_bytes = exclusions.size_cap_bytes
        self.subdirs: dict[str, int] = {}
        self.entries: dict[str, Entry] = {}
        self.excluded: dict[str, str] = {}
        prefix = path + "/" if path else ""
        files = sorted(listing.entries, key=_NAME)  # git's order: all names are distinct
        directories = [raw for raw in files if raw[1] == stat.S_IFDIR]
        for raw in directories:
            self._directory(prefix, raw, exclusions)
        if directories:
            files = [raw for raw in files if raw[1] != stat.S_IFDIR]
        self._put(files)
        self.expected = NO_COLUMNS

    def _put(self, files: list[RawEntry]) -> None:
        self.names: tuple[str, ...] = ()
        self.modes: _Numbers = ()
        self.sizes: _Numbers = ()
        self.mtimes_ns: _Numbers = ()
        self.ctimes_ns: _Numbers = ()
        self.inos: _Numbers = ()
        if files:
            found = zip(*files, strict=True)
            self.names, self.modes, self.sizes, self.mtimes_ns, self.ctimes_ns, self.inos = found

    def _directory(self, prefix: str, raw: RawEntry, exclusions: Exclusions) -> None:
        name, ino, mounted = raw[0], raw[5], raw[2]
        path = RelPath(os.fsencode(prefix + name))
        reason = exclusions.own_reason(path, is_dir=True, size=0)
        if reason:
            self.excluded[name] = reason
        elif mounted:
            raise _OrdinaryError
        else:
            self.subdirs[name] = ino
        self.entries[name] = Entry(raw[1:], reason=reason or "")

    def is_explained(self, expected: Columns | None, before_ns: int) -> bool:
        """Whether the files are exactly those that the index has in this directory."""
        if expected is None or len(expected.names) != len(self.names):
            return False
        self.expected = expected
        if not self.names:
            return True
        joined = b"\0".join(expected.names)
        return (
            os.fsencode("\0".join(self.names)) == joined
            and self.sizes == expected.sizes
            and self.mtimes_ns == expected.mtimes_ns
            and self.ctimes_ns == expected.ctimes_ns
            and _same_inodes(self.inos, expected.inos)
            and max(self.mtimes_ns) < before_ns
            and max(self.ctimes_ns) < before_ns
            and max(self.sizes) <= self.size_cap_bytes
            and METADATA_FILES.isdisjoint(self.names)
            and not (_maybe_forbidden(joined) and any(map(is_forbidden_name, expected.names)))
            and self._same_kinds()
            and not _any_xattrs(self._regular())
        )

    def _same_kinds(self) -> bool:
        if self.modes == self.expected.modes:
            return True
        kinds = [mode & _FILE_TYPE for mode in self.modes]
        return kinds == [mode & _FILE_TYPE for mode in self.expected.modes]

    def _regular(self) -> Iterable[str]:
        if self.modes == self.expected.modes:
            return self.names
        pairs = zip(self.names, self.modes, strict=True)
        return [name for name, mode in pairs if stat.S_ISREG(mode)]

    def keep_explained(
        self, rows: list[Row], before_ns: int, reader: Reader | None, now_ns: int
    ) -> None:
        """Keep only the files that the index explains, or that `reader` has read."""
        files = {raw[0]: raw for raw in self.listing.entries if raw[1] != stat.S_IFDIR}
        pairs = [(row, files[name]) for row in rows if (name := os.fsdecode(row[1])) in files]
        kept: list[tuple[Row, RawEntry]] = []
        pending = [pairs] if pairs else []
        while pending:  # bisect until the few files that differ are isolated
            part = pending.pop()
            self._put([raw for _, raw in part])
            if self.is_explained(columns([row for row, _ in part]), before_ns):
                kept += part
            elif len(part) > 1:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
        found = [(raw, row[0][ROW_ID]) for row, raw in kept]
        if reader is not None:
            explained = {raw[0] for raw, _ in found}
            rest = [raw for name, raw in files.items() if name not in explained]
            found += reader.read(rest, now_ns)
        if not found:
            raise _OrdinaryError
        self._go_on_with(found)
        if len(found) < len(files):
            self.signature = b""

    def _go_on_with(self, found: list[tuple[RawEntry, bytes]]) -> None:
        """Keep these files and their blobs, in git's order."""
        named = sorted((os.fsencode(raw[0]), raw, oid) for raw, oid in found)
        names, files, oids = zip(*named, strict=True)
        self._put(list(files))
        # If the modes on disk are git's own, they are also the modes for the tree.
        modes = self.modes if _GIT_MODES.issuperset(self.modes) else ()
        self.expected = NO_COLUMNS._replace(names=names, oids=oids, modes=modes)

    def vouched(self, directory: ListedDirectory, now_ns: int, later: Later | None) -> Vouched:
        mode, ctime_ns, ino, elsewhere = self.listing.own
        xattrs: Xattrs = ()
        if self.path:
            # The workspace's root is not recorded, and always young on first use.
            if elsewhere or is_racy(ctime_ns, ctime_ns, now_ns):
                raise _OrdinaryError
            xattrs = directory.xattrs()
        git_modes = self._git_modes()
        lines = zip(
            map(MODE_TEXT.__getitem__, git_modes),
            self.expected.names,
            repeat(b"\0"),
            self.expected.oids,
        )
        return Vouched(
            self.path, stat.S_IMODE(mode), xattrs, ino, self.subdirs, len(self.names),
            b"".join(chain.from_iterable(lines)), self._file_modes(git_modes),
            tuple(self._record((mode, ctime_ns, ino, xattrs), later)),
        )  # fmt: skip

    def _git_modes(self) -> _Numbers:
        """Each entry's mode in a tree, from the file on disk."""
        if self.modes == self.expected.modes:
            return self.modes
        return tuple(
            [MODE_LINK if stat.S_ISLNK(mode) else attrs.git_mode_of(mode) for mode in self.modes]
        )

    def _file_modes(self, git_modes: tuple[int, ...]) -> FileModes:
        """As in `DirectoryEdit`: the commonest modes are the defaults."""
        if self.modes == self.expected.modes:
            return FileModes()
        exact = [
            (name, git_mode, stat.S_IMODE(mode))
            for name, git_mode, mode in zip(self.expected.names, git_modes, self.modes, strict=True)
            if git_mode != MODE_LINK
        ]
        if all(mode in _IMPLICIT for _, _, mode in exact):
            return FileModes()
        counts: dict[int, Counter[int]] = {MODE_FILE: Counter(), MODE_EXEC: Counter()}
        for _, git_mode, mode in exact:
            counts[git_mode][mode] += 1
        file_mode = attrs.commonest(counts[MODE_FILE], attrs.FILE_MODE)
        exec_mode = attrs.commonest(counts[MODE_EXEC], attrs.EXEC_MODE)
        others = {name: mode for name, _, mode in exact if mode not in (file_mode, exec_mode)}
        return FileModes(file_mode, exec_mode, others)

    def _record(self, own: _Own, later: Later | None) -> DirRecord:
        newest_ns = max(own[1], max(self.mtimes_ns, default=0), max(self.ctimes_ns, default=0))
        # Cannot wait if files are left to the scan: it needs the rest of the record.
        can_wait = later is not None and self.signature != b"" and later.take(self, own)
        signature = self.signature and signature_of(self.listing) if not can_wait else UNSIGNED
        return DirRecord(
            signature=signature,
            subdirs=list(self.subdirs),
            excluded=self.excluded,
            specials=[],
            entry_count=len(self.names) + len(self.entries) - len(self.excluded),
            newest_ns=newest_ns,
            payload=b"" if can_wait else self.payload(own),
        )

    def payload(self, own: _Own) -> bytes:
        """The entries in the form of the stat cache."""
        mode, ctime_ns, ino, xattrs = own
        columns = (self.modes, self.sizes, self.mtimes_ns, self.ctimes_ns, self.inos)
        stats = zip(*columns, strict=True)
        packed: dict[str, tuple[object, ...]] = dict(
            zip(
                self.names,
                zip(stats, self.expected.oids, repeat(()), repeat(False), repeat("")),
                strict=True,
            )
        )
        packed.update((name, tuple(entry)) for name, entry in self.entries.items())
        return pack_payload(mode, ctime_ns, ino, False, xattrs, packed)


def _same_inodes(ours: _Numbers, theirs: _Numbers) -> bool:
    """Whether they are equal; the index keeps only 32 bits of each."""
    return ours == theirs or tuple([ino & 0xFFFFFFFF for ino in ours]) == theirs


def _maybe_forbidden(names: bytes) -> bool:
    """Whether git may forbid one of these names: all spellings of ``.git`` contain ``git``.

    Git ignores only non-ASCII characters between these letters.
    """
    return not names.isascii() or b"git" in names.lower()


def _any_xattrs(names: Iterable[str]) -> bool:
    """Whether one of these files in the current directory has an attribute that history keeps."""
    # Following a link that just replaced a file is harmless: its times differ from the file's.
    for found in filter(None, map(os.listxattr, names)):
        if any(name.startswith(RECORDED) for name in found):
            return True
    return False
