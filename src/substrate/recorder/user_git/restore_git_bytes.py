"""Restore from the trash what a command removed or overwrote inside a git directory.

    objects             always, if their names are free: an extra object does no harm
    refs, HEAD, index   of the workspace's own repository: not here, git itself moves those back
    reflogs             if the command shortened or removed them
    all else            config, hooks, and everything of a nested repository: exchanged with the
                        present content, unless that was changed after the command

Objects are restored first, so that a ref never names a missing object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import changed_after
from substrate.history.arrival import GIT_BACK, GIT_CREATED, GIT_OBJECTS, IN_GIT
from substrate.history.record import excluded_paths
from substrate.history.store import Entry, HistoryStore
from substrate.model import Kind, RelPath, display, join
from substrate.system import clock
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import Kept, Trash, TrashEntry, TrashReason

_OWN, _OWN_LOGS = b".git/", b".git/logs/"
#: What git itself moves back in the workspace's own repository, or writes again each time.
_GITS_OWN = re.compile(
    rb"\.git/(?:HEAD|index|packed-refs|refs/.*|[A-Z_]+_HEAD|AUTO_MERGE|COMMIT_EDITMSG"
    rb"|.*\.lock|gc\..*)"
)
#: The list of stashes, restored after the refs: moving the ref back would append to it.
_STASHES = b".git/logs/refs/stash"
_GAVE_WAY = Kept(TrashReason.REPLACED_BY_UNDO)
_SHOWN = 10


class Restored(NamedTuple):
    objects: int = 0
    paths: tuple[RelPath, ...] = ()
    #: The paths of `paths` that did not exist before.
    created: tuple[RelPath, ...] = ()
    #: Paths that stay as they are, with the reason.
    left: tuple[tuple[RelPath, str], ...] = ()
    #: Object files that an undo restored and that its redo leaves in place.
    objects_left: int = 0

    def notes(self) -> list[str]:
        notes = []
        if self.objects:
            notes.append(f"brought back {self.objects} file(s) of git objects")
        if self.objects_left:
            notes.append(
                f"{self.objects_left} file(s) of git objects that the undo brought back stay;"
                " `git gc` removes those that nothing needs"
            )
        if self.paths:
            more = f" and {len(self.paths) - _SHOWN} more" if len(self.paths) > _SHOWN else ""
            notes.append("put back: " + ", ".join(map(display, self.paths[:_SHOWN])) + more)
        return notes + [f"{display(path)} stays as it is: {why}" for path, why in self.left]


def noted(detail: Mapping[str, object], done: Restored) -> dict[str, object]:
    """For the entry of the undo: a redo takes exactly this back.

    `detail`: what the entry already says, from `planned` or from before a kill.
    """
    back = dict.fromkeys((*excluded_paths.unpacked(detail.get(GIT_BACK)), *done.paths))
    created = dict.fromkeys((*excluded_paths.unpacked(detail.get(GIT_CREATED)), *done.created))
    if not back and not done.objects:
        return {}
    more: dict[str, object] = {
        IN_GIT: len(back) + done.objects,
        excluded_paths.ARRIVED: clock.now_ns(),
        GIT_BACK: excluded_paths.packed(back) if back else None,
        GIT_CREATED: excluded_paths.packed(created) if created else None,
        GIT_OBJECTS: done.objects or None,
    }
    return {name: value for name, value in more.items() if value is not None}


def planned(store: HistoryStore, entries: Sequence[Entry]) -> dict[str, object]:
    """What `bring_back` may do, recorded in the undo's entry before it starts.

    A kill must not leave files that no redo knows about. `noted` adds when they arrived.
    """
    trash = Trash(store.trash_dir)
    paths: dict[RelPath, None] = {}
    for entry in entries:
        made = excluded_paths.unpacked(entry.detail.get(GIT_CREATED))
        items = [item.path for item in _items(store, trash, entry) if not _is_object(item)]
        paths.update(dict.fromkeys((*made, *items)))
    wanted = [path for path in paths if not _GITS_OWN.fullmatch(path)]
    created = [path for path in wanted if not os.path.lexists(store.root / os.fsdecode(path))]
    said = {GIT_BACK: wanted, GIT_CREATED: created}
    return {name: excluded_paths.packed(paths) for name, paths in said.items() if paths}


def bring_back(store: HistoryStore, entries: Sequence[Entry], under: str) -> Restored:
    """Restore the files of these entries, newest first, before refs move.

    Replaced content goes to the trash as `under`.
    """
    trash = Trash(store.trash_dir)
    found = [(entry, _items(store, trash, entry)) for entry in entries]
    objects = sum(
        _objects_back(store, trash, item)
        for _, items in found
        for item in items
        if _is_object(item)
    )
    bringing = _Bringing(store, trash, under)
    for entry, items in found:
        files = [item for item in items if not _is_object(item) and item.path != _STASHES]
        bringing.take_back(entry, files)
    stay = (entry.detail.get(GIT_OBJECTS) for entry in entries)
    return Restored(
        objects,
        tuple(bringing.done),
        tuple(path for path, was_there in bringing.done.items() if not was_there),
        tuple(bringing.left.items()),
        sum(count for count in stay if isinstance(count, int)),
    )


def stashes_back(store: HistoryStore, entries: Sequence[Entry]) -> None:
    """Restore the list of stashes, after the refs have moved."""
    trash = Trash(store.trash_dir)
    for item in [item for entry in entries for item in _items(store, trash, entry)]:
        if item.path == _STASHES and not os.path.lexists(store.root / os.fsdecode(_STASHES)):
            os.makedirs(store.root / ".git/logs/refs", exist_ok=True)
            trash.restore(item, store.root)


def nested(store: HistoryStore, entry: Entry) -> list[str]:
    """The git directories below the workspace's own that an entry changed."""
    items = [item.path for item in _items(store, Trash(store.trash_dir), entry)]
    found = {path[: path.find(b"/.git/") + 5] for path in items if not path.startswith(_OWN)}
    return sorted(map(display, found))


def _items(store: HistoryStore, trash: Trash, entry: Entry) -> list[TrashEntry]:
    """The trash items of an entry inside git directories, one per path.

    If an undo restored an item and a redo put it away again, it is in the redo's trash. If a path
    has two items, the older one was there before the entry.
    """
    found = [item for item in trash.under(entry.command_id) if excluded_paths.is_in_git(item.path)]
    for undo in store.ledger.ever_reversed_by(entry.seq):
        for redo in store.ledger.ever_reversed_by(undo.seq):
            found += _items(store, trash, redo)
    by_path: dict[RelPath, TrashEntry] = {}
    for item in found:
        by_path.setdefault(item.path, item)
    return list(by_path.values())


def _is_object(item: TrashEntry) -> bool:
    return item.path.find(b".git/objects/") >= 0


def _objects_back(store: HistoryStore, trash: Trash, item: TrashEntry) -> int:
    """Restore objects and return how many; if a name is taken, the object already exists."""
    count = 0
    for path in list(_files_of(item)):
        os.makedirs(os.path.dirname(store.root / os.fsdecode(path)), exist_ok=True)
        try:
            trash.restore(item, store.root, path)
        except RefusedError:
            continue
        count += 1
    return count


def _files_of(item: TrashEntry) -> Iterator[RelPath]:
    if item.kind is not Kind.DIRECTORY:
        yield item.path
        return
    top = os.fsencode(item.location)
    for where, _, names in os.walk(top):
        for name in names:
            yield join(RelPath(item.path + where[len(top) :]), name)


class _Bringing:
    """Restores the files of several entries, one entry after the other."""

    def __init__(self, store: HistoryStore, trash: Trash, under: str) -> None:
        self.store = store
        self.trash = trash
        self.under = under
        #: Exchanged path → whether it existed before the first exchange.
        self.done: dict[RelPath, bool] = {}
        self.left: dict[RelPath, str] = {}

    def take_back(self, entry: Entry, items: list[TrashEntry]) -> None:
        made = excluded_paths.unpacked(entry.detail.get(GIT_CREATED))
        for path in made:
            if not path.startswith(_OWN_LOGS):  # git removes a log with its branch
                self.turn(entry, path, None)
        # A path that an undo created and moved away again did not exist before it.
        never = set(made) if entry.kind in changed_after.MOVING_KINDS else set()
        for item in items:
            if item.path not in never and _is_wanted(self.store, item):
                self.turn(entry, item.path, item)

    def turn(self, entry: Entry, path: RelPath, item: TrashEntry | None) -> None:
        if _GITS_OWN.fullmatch(path) or path in self.left:
            return
        if path not in self.done and changed_after.is_changed(self.store, entry, path):
            under = item.entry_id.partition("/")[0] if item else ""
            how = f"; its old state: `substrate recover restore {under} {display(path)}`"
            self.left[path] = "it was changed since" + (how if item else "")
            return
        was_there = os.path.lexists(self.store.root / os.fsdecode(path))
        try:
            if _exchanged(self.store, self.trash, path, item, self.under):
                self.done.setdefault(path, was_there)
        except RefusedError as error:
            self.left[path] = error.message


def _is_wanted(store: HistoryStore, item: TrashEntry) -> bool:
    """False for a reflog that only got longer: nothing of it is lost."""
    if not item.path.startswith(_OWN_LOGS):
        return True
    old = read_bytes_or_none(item.location) if item.kind is Kind.FILE else None
    now = _content(store.root / os.fsdecode(item.path))
    return old is None or now is None or not now.startswith(old)


def _content(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else read_bytes_or_none(path)
    except OSError:
        return None


def _exchanged(
    store: HistoryStore, trash: Trash, path: RelPath, item: TrashEntry | None, under: str
) -> bool:
    was_there = True
    try:
        trash.keep(store.root, path, under, _GAVE_WAY)
    except (NotFoundError, OSError):
        was_there = False
    if item is None:
        return was_there
    os.makedirs(os.path.dirname(store.root / os.fsdecode(path)), exist_ok=True)
    trash.restore(item, store.root)
    return True
