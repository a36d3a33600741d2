"""Owners that a command changed: recorded with its entry, and put back by its undo.

    chown bin:bin a    a: 0:0 → 2:2       undo gives it to 0:0 again
    rm b               b: 1000:1000 → -   undo creates it again, and gives it to 1000:1000
    install -o 5 c d   d: - → 5:0         redo gives it to 5:0 again

Only root can give files away. An ordinary user's commands in worlds can still replace or remove
another user's files; these owners are recorded, too. A restore that may not set an owner leaves the
present one, takes set-id bits away, and says so. A file that another user could write to loses its
set-id bits as well.
"""

from __future__ import annotations

import base64
import errno
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from substrate.history.store import Detail, Entry, HistoryStore
from substrate.model import ABSENT, RelPath, display, is_within, split
from substrate.workspace.apply import LayerDiff
from substrate.workspace.paths import CHANGE, Directory, Walker, change_owner, may_be_planted

#: In an entry's detail.
KEY = "owners"

#: (user, group)
Owner = tuple[int, int]
_SET_ID = stat.S_ISUID | stat.S_ISGID
_SHOWN = 10


class Owned(NamedTuple):
    """One path whose owner changed; None: there was, or is, nothing at the path."""

    path: RelPath
    old: Owner | None
    new: Owner | None


class Given(NamedTuple):
    """What a restore did about owners."""

    done: tuple[Owned, ...] = ()
    notes: tuple[str, ...] = ()

    def detail(self) -> dict[str, object]:
        return to_detail(self.done)


class _Done(NamedTuple):
    owned: Owned
    took_set_id: bool


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def to_detail(owned: Sequence[Owned]) -> dict[str, object]:
    lines = [b" ".join([_text(one.old), _text(one.new), one.path]) for one in owned]
    packed = base64.b64encode(zlib.compress(b"\0".join(lines), 1)).decode("ascii")
    return {KEY: packed} if owned else {}


def of_detail(detail: Detail) -> list[Owned]:
    """The inverse of `to_detail`; empty if the detail has no owners."""
    packed = detail.get(KEY)
    if not isinstance(packed, str):
        return []
    lines = zlib.decompress(base64.b64decode(packed)).split(b"\0")
    fields = [line.split(b" ", 2) for line in lines]
    return [Owned(RelPath(path), _owner(old), _owner(new)) for old, new, path in fields]


def _text(owner: Owner | None) -> bytes:
    return b"-" if owner is None else b"%d:%d" % owner


def _owner(text: bytes) -> Owner | None:
    if text == b"-":
        return None
    uid, gid = text.split(b":")
    return int(uid), int(gid)


# ------------------------------------------------------------------------------ recording


def of_arrival(store: HistoryStore, diff: LayerDiff) -> list[Owned]:
    """The owners that the arrival of `diff` will change, read before it."""
    if not hasattr(os, "geteuid"):
        return []
    looking = _Looking(store, diff)
    found = [looking.at(one.path, one.new != ABSENT, one.is_there) for one in diff.entries]
    return [one for one in found if one is not None]


class _Looking:
    def __init__(self, store: HistoryStore, diff: LayerDiff) -> None:
        self._root = os.fsencode(store.root)
        self._coming = {one.path: one.owner for one in diff.entries if one.is_there}
        self._above: dict[bytes, Owner | None] = {}
        self._own = os.geteuid(), os.getegid()
        self._is_root = is_root()

    def at(self, path: RelPath, stays: bool, is_there: bool) -> Owned | None:
        old = self._stands(path)
        if not self._is_root and (old is None or old[0] == self._own[0]):
            return None  # the user's own, also after a restore
        new = self._coming.get(path) if stays and is_there else None
        if stays and (new is None or -1 in new):
            return None  # another name of a file; or a layer that records no owners
        if old is not None and (new is not None or not self._is_root):
            return Owned(path, old, new) if old != new else None
        usual = self._usual(split(path)[0], is_new=old is None)
        if old is None and new == self._own:
            return None  # every new file of a command: too many to record just for a redo
        return Owned(path, old, new) if (old or new) not in (usual, None) else None

    def _usual(self, directory: bytes, *, is_new: bool) -> Owner | None:
        """The owner that a file gets when a restore creates it there."""
        if is_new and RelPath(directory) in self._coming:
            return self._coming[RelPath(directory)]
        if directory not in self._above:
            self._above[directory] = self._stands(directory)
        return self._above[directory]

    def _stands(self, path: bytes) -> Owner | None:
        try:
            at = os.lstat(os.path.join(self._root, path) if path else self._root)
        except OSError:
            return None
        return at.st_uid, at.st_gid


# ------------------------------------------------------------------------------ putting back


def wanted(entries: Iterable[tuple[Entry, Sequence[RelPath]]]) -> list[Owned]:
    """The owners to set when these entries (newest first; all or some paths) are taken back."""
    return [
        one
        for entry, paths in entries
        for one in of_detail(entry.detail)
        if one.old is not None and (not paths or any(is_within(one.path, p) for p in paths))
    ]


def describe(todo: Sequence[Owned]) -> list[str]:
    """What `give_back` would do, for a dry run."""
    refused = " (only root can: it will be yours)" if not is_root() else ""
    return [f"give {display(one.path)} back to {_shown(one.old)}{refused}" for one in todo]


def give_back(store: HistoryStore, todo: Sequence[Owned], made: set[RelPath]) -> Given:
    """`made`: paths that this restore created. A path that another user owns by now stays."""
    done: list[Owned] = []
    refused: list[str] = []
    without: list[str] = []
    walker = Walker(store.anchor.top)
    for one in todo:
        try:
            directory, name = walker.parent_of(one.path, CHANGE)
        except OSError:
            continue
        with directory:
            try:
                changed = _give(directory, name, one, is_made=one.path in made)
            except PermissionError:
                _take_set_id(directory, name)
                refused.append(f"{display(one.path)} ({_shown(one.old)})")
                continue
            except OSError:
                continue  # gone: a conflict left it out
        if changed is not None:
            done.append(changed.owned)
            without += [display(one.path)] if changed.took_set_id else []
    notes = []
    if refused:
        why = "only root can give files away" if not is_root() else "they have other names"
        notes.append(f"{why}; not given back to their owner: {_listed(refused)}")
    if without:
        why = "another user could write to them"
        notes.append(f"set-id bits were taken away, because {why}: {_listed(without)}")
    return Given(tuple(done), tuple(notes))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _give(directory: Directory, name: bytes, one: Owned, *, is_made: bool) -> _Done | None:
    def wish(at: os.stat_result) -> Owner | None:
        now = at.st_uid, at.st_gid
        if now == one.old or (now != one.new and not is_made):
            return None
        if may_be_planted(directory, at):
            raise PermissionError(errno.EPERM, "a file with other names", name)
        return one.old

    changed = change_owner(directory, name, wish)
    if changed is None:
        return None
    owned = Owned(one.path, None if is_made else changed.before, one.old)
    return _Done(owned, changed.took_set_id)


def _take_set_id(directory: Directory, name: bytes) -> None:
    """Clear set-id bits: they would grant the rights of the wrong owner."""
    at = directory.lstat(name)
    if at.st_mode & _SET_ID and stat.S_ISREG(at.st_mode):
        directory.chmod(name, stat.S_IMODE(at.st_mode) & ~_SET_ID)


def _shown(owner: Owner | None) -> str:
    return "-" if owner is None else f"{owner[0]}:{owner[1]}"
