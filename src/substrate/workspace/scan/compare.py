"""Comparing one directory with its record, entry by entry."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from substrate.model import ABSENT, BlobWriter, Kind, Node, RelPath
from substrate.system import clock
from substrate.workspace.exclude import METADATA_FILES, SYSTEM_FILES, Exclusions
from substrate.workspace.paths import (
    UNKNOWN,
    KindChangedError,
    KnownBlob,
    ListedDirectory,
    Listing,
    RawEntry,
    TooLargeError,
    has_content,
    is_racy,
    known_entry,
    read_entry,
    settled_before_ns,
    stored,
)
from substrate.workspace.scan.stat_cache import (
    DirRecord,
    Entry,
    Payload,
    StatCache,
    Xattrs,
    directory_node,
    node_of,
)

_S_IFMT, _S_IFREG = 0o170000, stat.S_IFREG


#: The reason of a file that could not be read, in the cache.
UNREADABLE = "it cannot be read"


class ScanResult:
    """What a scan found; the cache it was given now describes the new state."""

    def __init__(self) -> None:
        #: Every path whose node may differ from the cached one, with the node on disk. For a
        #: directory that vanished also every path below it, as ABSENT.
        self.seen: dict[RelPath, Node] = {}
        #: Number of recorded paths that are unchanged.
        self.unchanged_count = 0
        #: Excluded paths with the reason; the scan does not descend into them.
        self.excluded: dict[RelPath, str] = {}
        #: Excluded paths of the cached state that are gone or, for files, changed.
        self.excluded_gone: list[RelPath] = []
        #: Excluded paths of the cached state that are recorded now: the rules changed, or a file
        #: shrank. They (and all below) existed before, but were not scanned.
        self.admitted: set[RelPath] = set()
        #: FIFOs, sockets, devices: known, without content.
        self.specials: list[RelPath] = []
        #: Paths that could not be read, with the reason. They keep their cached state.
        self.unreadable: dict[RelPath, str] = {}
        #: Blobs that were taken from `known` instead of being read.
        self.borrowed: set[bytes] = set()
        #: Directories whose records the caller gave to the scan: `seen` has only what differs from
        #: those records. If such a directory has vanished, the cache has no record of it any more.
        self.taken_over: set[str] = set()


class Comparison:
    """Compares directories for one scan; fills `result`, and drops the records of vanished ones."""

    def __init__(
        self,
        cache: StatCache,
        exclusions: Exclusions,
        blobs: BlobWriter,
        known: Mapping[RelPath, KnownBlob],
        result: ScanResult,
    ) -> None:
        self.cache = cache
        self.exclusions = exclusions
        self.blobs = blobs
        self.known = known
        self.result = result

    def compare(
        self, path: str, directory: ListedDirectory, listing: Listing, *, last_try: bool
    ) -> DirRecord:
        """The directory's new record.

        Raises `KindChangedError` if a name changed kind during the comparison; on the last try such
        a name counts as unreadable instead. Calling it again for the same directory is harmless.
        """
        record = self.cache.dirs.get(path)
        old = record.open() if record is not None else None
        one = _OneDirectory(self, path, directory, old, last_try)
        one.racy = not listing.signature
        remaining = dict(old.entries) if old is not None else {}
        entries = listing.entries
        if self.known and old is None:
            entries = one.take_vouched(entries)
        for raw in entries:
            one.entry(raw, remaining.pop(raw[0], None))
        for name, before in remaining.items():
            one.vanished(name, before)
        return one.finish(listing)

    def drop(self, path: str, *, gone: bool) -> None:
        """Forget a directory and all below; `gone`: it does not exist (else it is now excluded)."""
        pending = [path]
        while pending:
            here = pending.pop()
            record = self.cache.dirs.get(here)
            if record is None:
                continue
            self.result.seen[_rel(here)] = ABSENT
            for name, entry in record.open().entries.items():
                if not entry.reason and not entry.is_dir:
                    self.result.seen[_rel(f"{here}/{name}")] = ABSENT
                elif entry.reason and gone:
                    self.result.excluded_gone.append(_rel(f"{here}/{name}"))
            pending += [f"{here}/{name}" for name in record.subdirs]
            self.cache.drop(here)


class _OneDirectory:
    def __init__(
        self,
        scan: Comparison,
        path: str,
        directory: ListedDirectory,
        old: Payload | None,
        last_try: bool,
    ) -> None:
        self.scan = scan
        self.path = path
        self.prefix = path + "/" if path else ""
        self.directory = directory
        self.old = old
        self.last_try = last_try
        self.entries: dict[str, Entry] = {}
        self.subdirs: list[str] = []
        self.excluded: dict[str, str] = {}
        self.specials: list[str] = []
        self.unchanged = 0
        #: Something here must be read again next time, whatever its stat is then.
        self.racy = False

    def entry(self, raw: RawEntry, before: Entry | None) -> None:
        name, mode, size = raw[0], raw[1], raw[2]
        text = self.prefix + name
        path = _rel(text)
        if mode == UNKNOWN:
            self._keep(name, before, os.strerror(size))
            return
        is_dir = mode == stat.S_IFDIR
        reason = self.scan.exclusions.own_reason(path, is_dir=is_dir, size=size)
        if is_dir and size and not reason:
            reason = self._mounted(name)
        if before is not None and before.reason:
            if _other_than(before, raw):
                self.scan.result.excluded_gone.append(path)
            if not reason and before.is_dir == is_dir:
                self.scan.result.admitted.add(path)
        if before is not None and not before.reason and (reason or not is_dir):
            # The previous entry is excluded now, or is not a directory any more.
            if before.is_dir:
                self.scan.drop(text, gone=not is_dir)
            elif reason:
                self.scan.result.seen[path] = ABSENT
        if reason:
            self._exclude(name, Entry(raw[1:], reason=reason))
        elif is_dir:
            self.entries[name] = Entry(raw[1:])
            self.subdirs.append(name)
        elif before is not None and self._same(before, raw):
            self._add(name, before)
            self.unchanged += 1
        else:
            self._read(name, path, raw, before)

    def take_vouched(self, entries: list[RawEntry]) -> list[RawEntry]:
        """Take over the files that the user's index vouches for; returns the other entries.

        On first use this sees every file of the project, so it is one tight loop for the plain
        case; everything unusual goes through `entry`.
        """
        scan, fd = self.scan, getattr(self.directory, "fd", None)
        if fd is None or scan.exclusions.may_exclude_files or not hasattr(os, "listxattr"):
            return entries
        known, seen, borrowed = scan.known, scan.result.seen, scan.result.borrowed
        prefix, here, rest = _rel(self.prefix), f"/proc/self/fd/{fd}/", []
        settled_ns, cap = settled_before_ns(clock.now_ns()), scan.exclusions.size_cap_bytes
        for raw in entries:
            name, mode, size, mtime_ns, ctime_ns, ino = raw
            path = RelPath(prefix + os.fsencode(name))
            blob = known.get(path)
            try:
                if (
                    blob is not None
                    and blob[2:5] == (size, mtime_ns, ctime_ns)
                    and blob[5] == ino & 0xFFFFFFFF
                    and mode & _S_IFMT == _S_IFREG == blob[1] & _S_IFMT
                    and size <= cap
                    and name not in METADATA_FILES
                    and mtime_ns < settled_ns > ctime_ns
                    and not os.listxattr(here + name, follow_symlinks=False)
                ):
                    oid = blob[0]
                    self.entries[name] = Entry(raw[1:], oid)
                    seen[path] = Node(Kind.FILE, mode & 0o7777, oid)
                    borrowed.add(oid)
                    continue
            except OSError:
                pass
            rest.append(raw)
        return rest

    def _mounted(self, name: str) -> str | None:
        try:
            return SYSTEM_FILES if self.directory.holds_system_files(name) else None
        except OSError:
            return None  # entering it will fail in the same way and report it

    def _same(self, before: Entry, raw: RawEntry) -> bool:
        if before.stat != raw[1:] or before.racy or before.reason:
            return False
        return before.newest_ns <= self.scan.cache.distrust_after_ns

    def _read(self, name: str, path: RelPath, raw: RawEntry, before: Entry | None) -> None:
        try:
            known = self.scan.known.get(path)
            entry = known_entry(self.directory, raw, known) if known is not None else None
            if entry is not None:
                self.scan.result.borrowed.add(entry.oid)
                content = None
            else:
                entry, content = read_entry(
                    self.directory, raw, self.scan.exclusions.size_cap_bytes
                )
        except TooLargeError as error:
            if before is not None and not before.reason:
                self.scan.result.seen[path] = ABSENT
            self._exclude(name, error.entry._replace(reason=self.scan.exclusions.cap_reason))
            return
        except FileNotFoundError:
            self.racy = True  # the listing has a name that no longer exists
            if before is not None:
                self.vanished(name, before)
            return
        except KindChangedError:
            if not self.last_try:
                raise
            self._keep(name, before, "it changes while it is being read")
            return
        except OSError as error:
            self._keep(name, before, error.strerror or str(error), raw)
            return
        if content is not None:
            entry = stored(entry, content, self.scan.blobs)
        # Replaced since it was listed: the listing's signature does not match this entry.
        self.racy = self.racy or entry.stat != raw[1:]
        self._add(name, entry)
        self.scan.result.seen[path] = node_of(entry)

    def _add(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry
        self.racy = self.racy or entry.racy
        if not has_content(entry.stat[0]):
            self.specials.append(name)

    def _exclude(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry
        self.excluded[name] = entry.reason
        self.scan.result.excluded[_rel(self.prefix + name)] = entry.reason

    def _keep(self, name: str, before: Entry | None, why: str, raw: RawEntry | None = None) -> None:
        """Unreadable: keep what is known of it, and read it again next time."""
        path = _rel(self.prefix + name)
        self.scan.result.unreadable[path] = why
        self.racy = True
        if raw is not None and (before is None or before.reason):
            # Its stat is enough to notice that it was removed or replaced.
            self.scan.result.admitted.discard(path)
            self.entries[name] = Entry(raw[1:], reason=UNREADABLE)
            return
        if before is None:
            return
        if before.reason:
            self._exclude(name, before)
        elif not before.is_dir:
            self._add(name, before._replace(racy=True))
        elif self.prefix + name in self.scan.cache.dirs:
            self.entries[name] = before
            self.subdirs.append(name)

    def vanished(self, name: str, before: Entry) -> None:
        text = self.prefix + name
        if before.reason:
            self.scan.result.excluded_gone.append(_rel(text))
        elif before.is_dir:
            self.scan.drop(text, gone=True)
        else:
            self.scan.result.seen[_rel(text)] = ABSENT

    def finish(self, listing: Listing) -> DirRecord:
        mode, ctime_ns, ino, _ = listing.own
        racy, xattrs = self._own_xattrs(ctime_ns, ino)
        payload = Payload(mode, ctime_ns, ino, racy, xattrs, self.entries)
        node = directory_node(payload)
        if self.path and (self.old is None or directory_node(self.old) != node):
            self.scan.result.seen[_rel(self.path)] = node
        self.scan.result.unchanged_count += self.unchanged
        self.scan.result.specials += [_rel(self.prefix + name) for name in self.specials]
        newest = max((entry.newest_ns for entry in self.entries.values()), default=0)
        return DirRecord(
            signature=b"" if self.racy or racy else listing.signature,
            subdirs=self.subdirs,
            excluded=self.excluded,
            specials=self.specials,
            entry_count=len(self.entries) - len(self.excluded),
            newest_ns=max(newest, ctime_ns),
            payload=payload.pack(),
        )

    def _own_xattrs(self, ctime_ns: int, ino: int) -> tuple[bool, Xattrs]:
        """The directory's attributes, read again only if its stat says that they may differ."""
        if not self.path:
            return False, ()
        old = self.old
        trusted = ctime_ns <= self.scan.cache.distrust_after_ns
        same = old is not None and (old.ctime_ns, old.ino) == (ctime_ns, ino)
        if old is not None and same and trusted and not old.racy:
            return False, old.xattrs
        racy = is_racy(ctime_ns, ctime_ns, clock.now_ns())
        try:
            return racy, self.directory.xattrs()
        except OSError as error:
            self.scan.result.unreadable[_rel(self.path)] = error.strerror or str(error)
            return True, old.xattrs if old is not None else ()


def _other_than(before: Entry, raw: RawEntry) -> bool:
    """Whether an excluded entry was replaced or, if it is a file, changed."""
    if before.is_dir and raw[1] == stat.S_IFDIR:
        return before.stat[4] != raw[5]
    return before.stat != raw[1:]


def _rel(text: str) -> RelPath:
    return RelPath(os.fsencode(text))
