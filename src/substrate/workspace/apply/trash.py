"""Displaced entries that no snapshot has: moved aside, listed, and expired by age and size.

    trash/<operation or command id>/<n>/item         the entry itself, renamed
    trash/<operation or command id>/<n>/entry.json   its path, when it was moved, why
    trash/<operation or command id>/<n>/openings     modes of read-only directories in it

A read-only directory gets the owner's rights while it is here, so that `rm -rf project` can remove
it, and its exact mode before it goes back.

The record is written before the move: a crash between the two leaves a record without an item,
which is harmless, and never an item without a record. A record that cannot be read affects only its
own item: listing skips it, and `damaged` names it for fsck.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, NotFoundError, RefusedError
from substrate.model import Kind, RelPath, display, rel_path
from substrate.system import now_ns
from substrate.system.files import (
    fsync_dir,
    make_directory,
    read_bytes_or_none,
    remove_tree,
    write_atomic,
)
from substrate.workspace.apply.trash_reasons import Kept, TrashReason, from_record
from substrate.workspace.paths import Directory, Openings, Walker, kind_of, move, open_up

_ITEM, _RECORD = RelPath(b"item"), "entry.json"
_OWN_STORE = b".substrate-git"


class TrashEntry(NamedTuple):
    """One entry in the trash."""

    #: ``<under>/<n>``: the argument of `Trash.find`.
    entry_id: str
    path: RelPath
    kind: Kind
    #: Bytes; None for a directory that has not been measured (see `Trash.measure`).
    size_bytes: int | None
    when_ns: int
    why: Kept
    #: Where the entry itself is now.
    location: Path


class DamagedEntry(NamedTuple):
    """An entry in the trash whose record cannot be read."""

    entry_id: str
    location: Path
    reason: str


class Trash:
    """A directory of entries that were moved aside.

    It must be on the workspace's file system for moves to be renames; otherwise they are copies.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, root: Path | Directory, path: RelPath, under: str, why: Kept) -> TrashEntry:
        """Move the entry at `path` into the trash; `NotFoundError` if there is none."""
        parent, name = Walker(root).parent_of(path)
        with parent:
            return self.keep_from(parent, name, path=path, under=under, why=why)

    def keep_from(
        self, source: Directory, name: bytes, *, path: RelPath, under: str, why: Kept
    ) -> TrashEntry:
        """Move `name` out of an open directory; `path` is its path in the workspace."""
        try:
            at = source.lstat(name)
        except FileNotFoundError as error:
            raise NotFoundError(f"nothing is at {display(path)}") from error
        kind = kind_of(at)
        size = at.st_size if kind is Kind.FILE else None if kind is Kind.DIRECTORY else 0
        place = self._new_place(under)
        entry_id = f"{under}/{place.name}"
        entry = TrashEntry(entry_id, path, kind, size, now_ns(), why, place / os.fsdecode(_ITEM))
        write_atomic(place / _RECORD, _to_json(entry))
        with Directory.open_root(place) as target:
            move(source, name, target, _ITEM)
            target.sync()
        if kind is Kind.DIRECTORY:
            open_up(place, place, _ITEM)
        return entry

    def list(self) -> tuple[TrashEntry, ...]:
        """Every entry with a readable record, oldest first."""
        return _in_order(_read(place) for place in self._places())

    def under(self, name: str) -> tuple[TrashEntry, ...]:
        """The entries that one operation or command put there, oldest first."""
        _check_name(name)
        return _in_order(_read(place) for place in _directories(self.directory / name))

    def damaged(self) -> tuple[DamagedEntry, ...]:
        """Entries whose record cannot be read: their path is unknown, their bytes are there."""
        found = (_read(place) for place in self._places())
        return tuple(one for one in found if isinstance(one, DamagedEntry))

    def _places(self) -> Iterator[Path]:
        for group in _directories(self.directory):
            yield from _directories(group)

    def find(self, entry_id: str) -> TrashEntry:
        under, _, number = entry_id.partition("/")
        _check_name(under)
        entry = _read(self.directory / under / number) if number.isdigit() else None
        if isinstance(entry, DamagedEntry):
            raise DamagedStoreError(
                f"the record of {entry_id} in the trash is damaged: {entry.reason}",
                hint=f"its content is in {entry.location}",
            )
        if entry is None:
            raise NotFoundError(f"no {entry_id} in the trash", hint="it may have expired")
        return entry

    def restore(
        self, entry: TrashEntry, root: Path | Directory, part: RelPath | None = None
    ) -> None:
        """Move it, or a `part` of it, back to its path; never over something (`RefusedError`)."""
        path = entry.path if part is None else part
        place = entry.location.parent
        try:
            parent, name = Walker(root).parent_of(path)
        except OSError as error:
            raise RefusedError(
                f"{display(path)} cannot be put back: {error.strerror or error}",
                hint="make the directory that it was in, then try again",
            ) from error
        with parent, self._source(entry, path) as source, _exact_modes(entry, path):
            try:
                move(source, _ITEM if path == entry.path else name, parent, name)
            except FileExistsError as error:
                raise RefusedError(
                    f"{display(path)} is taken",
                    hint="move what is there out of the way, then try again",
                ) from error
            parent.sync()
        if path == entry.path:
            self._forget(place)

    @staticmethod
    def _source(entry: TrashEntry, path: RelPath) -> Directory:
        """The directory that holds the item, or a part of it. No symlink below it is followed."""
        if path == entry.path:
            return Directory.open_root(entry.location.parent)
        below = RelPath(path[len(entry.path) + 1 :])
        try:
            return Walker(entry.location).parent_of(below)[0]
        except OSError as error:
            raise RefusedError(
                f"{entry.entry_id} in the trash holds no {display(path)}: {error.strerror}",
                hint=f"`substrate recover show {entry.entry_id.partition('/')[0]}` lists it",
            ) from error

    def mend(self, damaged: DamagedEntry, path: RelPath) -> None:
        """Write a new record for it; `path` is the best known guess of its path."""
        kind = kind_of(os.lstat(damaged.location))
        why = Kept(TrashReason.RECORD_DAMAGED)
        entry = TrashEntry(damaged.entry_id, path, kind, None, now_ns(), why, damaged.location)
        write_atomic(damaged.location.parent / _RECORD, _to_json(entry))

    def measure(self, entry: TrashEntry) -> int:
        """Its size in bytes; for a directory, the sum of everything below."""
        if entry.size_bytes is not None:
            return entry.size_bytes
        return sum(_sizes(entry.location))

    def expire(
        self, max_age_s: float, max_bytes: int, age_ns: Callable[[int], int]
    ) -> tuple[TrashEntry, ...]:
        """Remove entries older than `max_age_s`, then the oldest until the rest fits `max_bytes`.

        Returns the removed entries. `age_ns` maps a time to an age. Read-only directories from an
        earlier version, or after a kill, are made accessible for their owner first.
        """
        ages = {entry.entry_id: age_ns(entry.when_ns) for entry in self.list()}
        entries = sorted(self.list(), key=lambda one: (-ages.get(one.entry_id, 0), one.entry_id))
        for entry in entries:
            if entry.kind is Kind.DIRECTORY:
                open_up(entry.location.parent, entry.location.parent, _ITEM)
        sizes = {entry.entry_id: self.measure(entry) for entry in entries}
        total = sum(sizes.values())
        gone = []
        for entry in entries:
            too_old = ages.get(entry.entry_id, 0) > max_age_s * 1e9
            if not too_old and total <= max_bytes:
                continue
            total -= sizes[entry.entry_id]
            self._forget(entry.location.parent)
            gone.append(entry)
        return tuple(gone)

    def drop(self, entry: TrashEntry) -> None:
        """Remove it for good: it cannot be restored."""
        self._forget(entry.location.parent)

    def _new_place(self, under: str) -> Path:
        _check_name(under)
        group = self.directory / under
        if not group.is_dir():
            make_directory(self.directory, 0o700)
            make_directory(group, 0o700)
            fsync_dir(self.directory)
        number = 1 + max((int(p.name) for p in _directories(group)), default=0)
        while True:
            try:
                (group / str(number)).mkdir(mode=0o700)
            except FileExistsError:
                number += 1
                continue
            fsync_dir(group)
            return group / str(number)

    @staticmethod
    def _forget(place: Path) -> None:
        remove_tree(place)
        try:
            place.parent.rmdir()
        except OSError:
            pass  # other entries of the same operation are still there


@contextmanager
def _exact_modes(entry: TrashEntry, path: RelPath) -> Iterator[None]:
    """Restore the modes of the directories in the item, or in a part of it, for its way out.

    If the move fails, they are opened again.
    """
    place = entry.location.parent
    part = RelPath(_ITEM + path[len(entry.path) :])
    with Directory.open_root(place) as notes:
        Openings(notes).shut(Walker(place), part)
    try:
        yield
    except BaseException:
        open_up(place, place, part)
        raise


def _check_name(under: str) -> None:
    if not under or "/" in under or "\\" in under or under in (".", ".."):
        raise ValueError(f"not a name for a place in the trash: {under!r}")


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as found:
            return [Path(e.path) for e in found if e.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _sizes(path: Path) -> list[int]:
    out = []
    stack = [os.fsencode(path)]
    while stack:
        try:
            with os.scandir(stack.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        out.append(entry.stat(follow_symlinks=False).st_size)
        except OSError:
            continue  # not accessible, or gone: counts as nothing
    return out


def _to_json(entry: TrashEntry) -> bytes:
    record = {
        "path": display(entry.path),
        "path_b64": base64.b64encode(entry.path).decode("ascii"),
        "kind": entry.kind.value,
        "size_bytes": entry.size_bytes,
        "when_ns": entry.when_ns,
        "reason": entry.why.reason.value,
        "detail": entry.why.detail,
    }
    return json.dumps(record).encode() + b"\n"


def _read(place: Path) -> TrashEntry | DamagedEntry | None:
    """None: a record without an item, which counts as nothing."""
    location = place / os.fsdecode(_ITEM)
    entry_id = f"{place.parent.name}/{place.name}"
    try:
        at = os.lstat(location)
    except OSError:
        return None
    try:
        raw = read_bytes_or_none(place / _RECORD)
        if not raw:
            return DamagedEntry(entry_id, location, "entry.json is missing or empty")
        return _parsed(json.loads(raw), entry_id, location, kind_of(at))
    except (ValueError, KeyError, TypeError, OSError) as error:
        return DamagedEntry(entry_id, location, f"entry.json is not a record of it ({error})")


def _parsed(record: dict[str, object], entry_id: str, location: Path, kind: Kind) -> TrashEntry:
    """`ValueError`, `KeyError` or `TypeError` for anything that this module does not write."""
    path = rel_path(base64.b64decode(str(record["path_b64"]), validate=True))
    size, when, reason = record["size_bytes"], record["when_ns"], record["reason"]
    detail = record.get("detail")
    if not path or path.split(b"/")[0] == _OWN_STORE:
        raise ValueError(f"{display(path)!r} is no path of the workspace")
    if Kind(record["kind"]) is not kind:
        raise ValueError(f"it names a {record['kind']}, but a {kind.value} is there")
    if not isinstance(when, int) or when < 0 or not isinstance(reason, str):
        raise ValueError("it has no time or no reason")
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError("it has no size")
    if not isinstance(detail, str | None):
        raise ValueError("the detail of its reason is not text")
    return TrashEntry(entry_id, path, kind, size, when, from_record(reason, detail), location)


def _in_order(found: Iterable[TrashEntry | DamagedEntry | None]) -> tuple[TrashEntry, ...]:
    readable = [one for one in found if isinstance(one, TrashEntry)]
    return tuple(sorted(readable, key=lambda entry: (entry.when_ns, entry.entry_id)))
