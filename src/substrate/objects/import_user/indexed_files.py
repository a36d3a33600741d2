"""A directory that the user's index explains, looked at once and in columns.

    names, sizes, times, inodes on disk  ==  those in the index      then the ids are right as well
    nothing young, no user xattr, no name that git forbids           modes may be any

One comparison a column instead of one a file: first use meets every file of the project here.
Files that differ in any way, or are not in the index, are read, or left to the scan.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from operator import itemgetter
from typing import NamedTuple

from substrate.model.paths import RelPath
from substrate.objects import attrs
from substrate.objects.index_table import NO_COLUMNS, ROW_ID, Columns, Row, columns
from substrate.objects.trees import (
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    MODE_TEXT,
    is_forbidden_name,
)
from substrate.objects.unvouched import Reader
from substrate.system import clock
from substrate.workspace.exclude import METADATA_FILES, Exclusions
from substrate.workspace.listing import (
    DescriptorDirectory,
    Listing,
    RawEntry,
    Tree,
    signature_of,
)
from substrate.workspace.reading import is_racy, settled_before_ns
from substrate.workspace.stat_cache import UNSIGNED, DirRecord, Entry, Xattrs, pack_payload

_Numbers = tuple[int, ...]
_FILE_TYPE = 0o170000
_IMPLICIT = frozenset({attrs.FILE_MODE, attrs.EXEC_MODE})
_GIT_MODES = frozenset({MODE_FILE, MODE_EXEC})


_NAME = itemgetter(0)
#: A directory's own mode, ctime_ns, ino and attributes.
_Own = tuple[int, int, int, Xattrs]
#: What a child keeps in memory for later takes some hundred bytes a file.
_LATER_FILES = 50_000

NO_EXCEPTIONS: Mapping[bytes, int] = {}


class FileModes(NamedTuple):
    """The files' part of an attrs record: its defaults, and the names that have another mode."""

    file_mode: int = attrs.FILE_MODE
    exec_mode: int = attrs.EXEC_MODE
    exceptions: Mapping[bytes, int] = NO_EXCEPTIONS


class Vouched(NamedTuple):
    """What one look gave; of plain values, so that a forked child can send it."""

    path: str
    mode: int
    xattrs: Xattrs
    ino: int
    #: Directories in it that are recorded, by inode.
    subdirs: dict[str, int]
    file_count: int
    #: The lines of its tree for files and links, in git's order.
    tree_lines: bytes
    file_modes: FileModes
    #: What the stat cache keeps of it.
    record: tuple[object, ...]


class Later:
    """Looks of one child that are all its parent needs for now, but not all that the stat cache
    keeps: the rest is worked out when the parent has its answer."""

    def __init__(self) -> None:
        self._looks: list[tuple[_Look, _Own]] = []
        self._room_files = _LATER_FILES

    def take(self, look: _Look, own: _Own) -> bool:
        """Whether it can wait."""
        if self._room_files <= 0:
            return False
        self._room_files -= len(look.names)
        self._looks.append((look, own))
        return True

    def records(self) -> dict[str, tuple[bytes, bytes]]:
        """The signature and the payload of each."""
        return {
            look.path: (signature_of(look.listing), look.payload(own)) for look, own in self._looks
        }


class _OrdinaryError(Exception):
    """Something is unusual here: the ordinary way, please."""


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

    What they do not explain `reader` reads. Where something is left, the record has no signature.
    A record that is whole but for its payload and signature, which come `later`, is `UNSIGNED`.

    Files changed at `written_before_ns` or later may have changed after the index saw them.
    Changes the current directory: for a forked child only. The directory is opened by its whole
    path, so the caller has to compare inodes on the way down to it.
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
        files = sorted(listing.entries, key=_NAME)  # as git does: no two names are the same
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
        """Go on with those files alone that the index explains, or that `reader` has read."""
        files = {raw[0]: raw for raw in self.listing.entries if raw[1] != stat.S_IFDIR}
        pairs = [(row, files[name]) for row in rows if (name := os.fsdecode(row[1])) in files]
        kept: list[tuple[Row, RawEntry]] = []
        pending = [pairs] if pairs else []
        while pending:  # halve what differs until the few that do are alone
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
        """These files and their blobs, in git's order."""
        named = sorted((os.fsencode(raw[0]), raw, oid) for raw, oid in found)
        names, files, oids = zip(*named, strict=True)
        self._put(list(files))
        # Where the modes on disk are git's own they are what the index would say.
        modes = self.modes if _GIT_MODES.issuperset(self.modes) else ()
        self.expected = NO_COLUMNS._replace(names=names, oids=oids, modes=modes)

    def vouched(self, directory: DescriptorDirectory, now_ns: int, later: Later | None) -> Vouched:
        mode, ctime_ns, ino, elsewhere = self.listing.own
        xattrs: Xattrs = ()
        if self.path:
            # The workspace's own directory is not recorded, and always fresh on first use.
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
        """Each entry's mode in a tree, by what stands there now."""
        if self.modes == self.expected.modes:
            return self.modes
        return tuple(
            [MODE_LINK if stat.S_ISLNK(mode) else attrs.git_mode_of(mode) for mode in self.modes]
        )

    def _file_modes(self, git_modes: tuple[int, ...]) -> FileModes:
        """As `DirectoryEdit` says it: the commonest modes are the defaults."""
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
        # Where something is left to the scan that needs to know the rest.
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
        """What the stat cache keeps of the entries."""
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
    """Equal but for the index keeping only 32 bits of them."""
    return ours == theirs or tuple([ino & 0xFFFFFFFF for ino in ours]) == theirs


def _maybe_forbidden(names: bytes) -> bool:
    """Whether git may forbid one of these names: its spellings of ``.git`` hold these letters.

    Between them only characters beyond ASCII are overlooked.
    """
    return not names.isascii() or b"git" in names.lower()


def _any_xattrs(names: Iterable[str]) -> bool:
    """Whether one of these files in the current directory has an attribute of the user's."""
    # Following a link that just took a file's place does no harm: its times are not the file's.
    for found in filter(None, map(os.listxattr, names)):
        if any(name.startswith("user.") for name in found):
            return True
    return False
