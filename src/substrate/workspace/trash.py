"""What had to give way but is in no snapshot: moved aside, listed, and expired by age and size.

    trash/<operation or command id>/<n>/item         the thing itself, renamed
    trash/<operation or command id>/<n>/entry.json   where it stood, when, why

The record is written before the move: a crash between the two leaves a record without an item,
which is nothing, and never an item that nobody can name.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.model.nodes import Kind
from substrate.model.paths import RelPath, display, rel_path
from substrate.system.clock import now_ns
from substrate.system.files import (
    fsync_dir,
    read_bytes_or_none,
    remove_tree,
    write_atomic,
)
from substrate.workspace.dirwalk import Directory, Walker
from substrate.workspace.move import move
from substrate.workspace.probe import kind_of

_ITEM, _RECORD = b"item", "entry.json"


class TrashEntry(NamedTuple):
    """One thing in the trash."""

    #: ``<under>/<n>``: what `Trash.find` takes.
    entry_id: str
    path: RelPath
    kind: Kind
    #: Bytes; None for a directory that has not been measured (see `Trash.measure`).
    size_bytes: int | None
    when_ns: int
    reason: str
    #: Where the thing itself lies now.
    location: Path


class Trash:
    """A directory of things that were moved aside. It must be on the workspace's file system for
    moves to be renames; on another one they are copies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, root: Path, path: RelPath, under: str, reason: str) -> TrashEntry:
        """Move what stands at `path` into the trash; `NotFoundError` if nothing does."""
        parent, name = Walker(root).parent_of(path)
        with parent:
            return self.keep_from(parent, name, path=path, under=under, reason=reason)

    def keep_from(
        self, source: Directory, name: bytes, *, path: RelPath, under: str, reason: str
    ) -> TrashEntry:
        """Move `name` out of an open directory; `path` is where it belongs in the workspace."""
        try:
            at = source.lstat(name)
        except FileNotFoundError as error:
            raise NotFoundError(f"nothing stands at {display(path)}") from error
        kind = kind_of(at)
        size = at.st_size if kind is Kind.FILE else None if kind is Kind.DIRECTORY else 0
        place = self._new_place(under)
        entry_id = f"{under}/{place.name}"
        entry = TrashEntry(entry_id, path, kind, size, now_ns(), reason, place / os.fsdecode(_ITEM))
        write_atomic(place / _RECORD, _to_json(entry))
        with Directory.open_root(place) as target:
            move(source, name, target, _ITEM)
            target.sync()
        return entry

    def list(self) -> tuple[TrashEntry, ...]:
        """Everything in the trash, oldest first."""
        found = [
            entry
            for group in _directories(self.directory)
            for place in _directories(group)
            if (entry := _read(place)) is not None
        ]
        return tuple(sorted(found, key=lambda entry: (entry.when_ns, entry.entry_id)))

    def find(self, entry_id: str) -> TrashEntry:
        under, _, number = entry_id.partition("/")
        _check_name(under)
        entry = _read(self.directory / under / number) if number.isdigit() else None
        if entry is None:
            raise NotFoundError(f"no {entry_id} in the trash", hint="it may have expired")
        return entry

    def restore(self, entry: TrashEntry, root: Path, to: RelPath | None = None) -> None:
        """Move it back to where it stood, or to `to`; never over something (`RefusedError`)."""
        path = entry.path if to is None else to
        place = entry.location.parent
        try:
            parent, name = Walker(root).parent_of(path)
        except OSError as error:
            raise RefusedError(
                f"{display(path)} cannot be put back: {error.strerror or error}",
                hint="make the directory it stood in first, or name another place",
            ) from error
        with parent, Directory.open_root(place) as source:
            try:
                move(source, _ITEM, parent, name)
            except FileExistsError as error:
                raise RefusedError(
                    f"{display(path)} is taken",
                    hint="move what stands there out of the way, or name another place",
                ) from error
            parent.sync()
        self._forget(place)

    def measure(self, entry: TrashEntry) -> int:
        """Its size in bytes; for a directory everything below is added up."""
        if entry.size_bytes is not None:
            return entry.size_bytes
        return sum(_sizes(entry.location))

    def expire(self, max_age_s: float, max_bytes: int, now: int) -> tuple[TrashEntry, ...]:
        """Remove what is older than `max_age_s` at `now` (ns), then the oldest until the rest
        fits `max_bytes`; returns what went."""
        entries = self.list()
        sizes = {entry.entry_id: self.measure(entry) for entry in entries}
        total = sum(sizes.values())
        gone = []
        for entry in entries:
            too_old = now - entry.when_ns > max_age_s * 1e9
            if not too_old and total <= max_bytes:
                continue
            total -= sizes[entry.entry_id]
            self._forget(entry.location.parent)
            gone.append(entry)
        return tuple(gone)

    def _new_place(self, under: str) -> Path:
        _check_name(under)
        group = self.directory / under
        if not group.is_dir():
            group.mkdir(mode=0o700, parents=True, exist_ok=True)
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
            pass  # others of the same operation are still there


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
            continue  # shut or gone: counts as nothing
    return out


def _to_json(entry: TrashEntry) -> bytes:
    record = {
        "path": display(entry.path),
        "path_b64": base64.b64encode(entry.path).decode("ascii"),
        "kind": entry.kind.value,
        "size_bytes": entry.size_bytes,
        "when_ns": entry.when_ns,
        "reason": entry.reason,
    }
    return json.dumps(record).encode() + b"\n"


def _read(place: Path) -> TrashEntry | None:
    raw = read_bytes_or_none(place / _RECORD)
    location = place / os.fsdecode(_ITEM)
    if raw is None or not os.path.lexists(location):
        return None
    record = json.loads(raw)
    return TrashEntry(
        f"{place.parent.name}/{place.name}",
        rel_path(base64.b64decode(record["path_b64"])),
        Kind(record["kind"]),
        record["size_bytes"],
        record["when_ns"],
        record["reason"],
        location,
    )
