"""The trash as `recover` shows it: what each operation moved there, with its snapshot if any."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from substrate.history.store import HistoryStore
from substrate.model import Kind, Node, RelPath, is_within, join
from substrate.objects.snapshots import Snapshot
from substrate.recorder.recover.found_snapshot import Found
from substrate.rewrite.snapshots import Match, Pattern, hits_in
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import Trash, TrashEntry
from substrate.workspace.paths import blob_id, kind_of

#: Files that every git command replaces: not the user's work, and not worth a line in a list.
_ROUTINE = re.compile(
    rb"(?:.*/)?\.git/(?:.*/)?(?:index|[A-Z_]*HEAD|COMMIT_EDITMSG|packed-refs|logs/.*|refs/.*|.*\.lock)"
)
_NOTHING = Snapshot(b"", b"")


def without_snapshot(store: HistoryStore, known: set[str]) -> list[Found]:
    """Operations that have something in the trash and no snapshot of their own."""
    groups: dict[str, list[TrashEntry]] = {}
    for item in Trash(store.trash_dir).list():
        groups.setdefault(item.entry_id.partition("/")[0], []).append(item)
    return [
        _found(store, name, tuple(items))
        for name, items in groups.items()
        if name not in known and any(not _is_routine(item.path) for item in items)
    ]


def joined(store: HistoryStore, one: Found) -> Found:
    """A snapshot with what its operation put into the trash."""
    items = Trash(store.trash_dir).under(one.operation_id)
    if not items:
        return one
    paths = dict.fromkeys((*one.paths, *(item.path for item in items)))
    size = one.size_bytes + _size(store, items)
    return one._replace(
        paths=tuple(paths), dirty_files=len(paths), size_bytes=size, trash=tuple(items)
    )


def _found(store: HistoryStore, name: str, items: tuple[TrashEntry, ...]) -> Found:
    entry = store.ledger.by_command_id(name)
    kind = entry.kind if entry else "operation"
    paths = tuple(dict.fromkeys(item.path for item in items))
    files = sum(not _is_routine(path) for path in paths)
    return Found(
        "trash", name, name, b"", items[-1].when_ns, kind, name, paths, files,
        _size(store, items), _NOTHING, store.objects, trash=items,
    )  # fmt: skip


def _size(store: HistoryStore, items: Sequence[TrashEntry]) -> int:
    trash = Trash(store.trash_dir)
    return sum(trash.measure(item) for item in items)


def _is_routine(path: RelPath) -> bool:
    return _ROUTINE.fullmatch(path) is not None


def place_of(one: Found, path: RelPath) -> Path | None:
    """Where `path` is in the trash, if the operation put it there. Follows no link."""
    for item in reversed(one.trash):
        if not is_within(path, item.path):
            continue
        at = os.fsencode(item.location)
        for name in path[len(item.path) + 1 :].split(b"/") if path != item.path else ():
            if not _is_directory(at):
                return None
            at = os.path.join(at, name)
        return Path(os.fsdecode(at)) if os.path.lexists(at) else None
    return None


def content(one: Found, path: RelPath) -> tuple[bytes, int] | None:
    """The bytes (for a link: its target) and mode of a file in the trash."""
    place = place_of(one, path)
    if place is None:
        return None
    at = os.lstat(place)
    if stat.S_ISLNK(at.st_mode):
        return os.fsencode(os.readlink(place)), 0
    if not stat.S_ISREG(at.st_mode):
        return None
    return read_bytes_or_none(place) or b"", stat.S_IMODE(at.st_mode)


def files(one: Found) -> Iterator[tuple[RelPath, Node]]:
    """Files and links, without their content ids."""
    for path, place in _places(one):
        at = os.lstat(place)
        yield path, Node(kind_of(at), stat.S_IMODE(at.st_mode))


def _places(one: Found) -> Iterator[tuple[RelPath, bytes]]:
    for item in one.trash:
        top = os.fsencode(item.location)
        if item.kind is not Kind.DIRECTORY:
            yield item.path, top
            continue
        for where, directories, names in os.walk(top):
            links = [name for name in directories if os.path.islink(os.path.join(where, name))]
            for name in sorted((*names, *links)):
                yield join(RelPath(item.path + where[len(top) :]), name), os.path.join(where, name)


def search(one: Found, wanted: Pattern) -> Iterator[Match]:
    for path, place in _places(one):
        if not stat.S_ISREG(os.lstat(place).st_mode):
            continue
        data = read_bytes_or_none(Path(os.fsdecode(place)))
        hits = hits_in(data, wanted) if data else ()
        if hits:
            yield Match(path, blob_id(data or b""), (one.name,), hits)


def write_out(one: Found, directory: Path, scope: Sequence[RelPath]) -> list[RelPath]:
    """Copy files to `directory`; the trash keeps them."""
    written = []
    for path, place in _places(one):
        if scope and not any(is_within(path, wanted) for wanted in scope):
            continue
        target = os.path.join(os.fsencode(directory), path)
        at = os.lstat(place)
        if not (stat.S_ISREG(at.st_mode) or stat.S_ISLNK(at.st_mode)) or os.path.lexists(target):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(place, target, follow_symlinks=False)
        if stat.S_ISREG(at.st_mode):
            os.chmod(target, stat.S_IMODE(at.st_mode) & 0o1777)
        written.append(path)
    return written


def _is_directory(path: bytes) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode) if os.path.lexists(path) else False
