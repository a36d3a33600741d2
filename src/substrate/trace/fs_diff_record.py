"""What a command did to files, as a span records it: writes, mods, deletes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.model import Change, Kind, RelPath, parent, to_text

#: Limit on excluded paths in one trace line: a build can write tens of thousands of files.
MOST_EXCLUDED = 2000


class FsDiff(NamedTuple):
    """Workspace-relative paths, each list sorted.

    Files, links and special files are listed; a directory only when it was created or removed
    empty. A path can be in two lists: a file that became an empty directory was deleted and
    written. `truncated` says that this is a shortened copy, made to be shown.
    """

    writes: tuple[RelPath, ...] = ()
    mods: tuple[RelPath, ...] = ()
    deletes: tuple[RelPath, ...] = ()
    truncated: bool = False
    #: Those of the paths above that history leaves out.
    excluded: tuple[RelPath, ...] = ()

    def paths(self) -> tuple[RelPath, ...]:
        """Every path once, sorted."""
        some = [paths for paths in (self.writes, self.mods, self.deletes) if paths]
        return some[0] if len(some) == 1 else tuple(sorted(set().union(*some)))

    def recorded_paths(self) -> tuple[RelPath, ...]:
        """Those that history keeps."""
        if not self.excluded:
            return self.paths()
        beyond = set(self.excluded)
        return tuple(path for path in self.paths() if path not in beyond)

    def shown(self, limit: int) -> FsDiff:
        """A copy with at most `limit` paths per list, for display only: never act on it."""
        if max(map(len, (self.writes, self.mods, self.deletes))) <= limit:
            return self
        return FsDiff(
            self.writes[:limit], self.mods[:limit], self.deletes[:limit], True,
            self.excluded[:limit],
        )  # fmt: skip

    def with_excluded(self, other: FsDiff) -> FsDiff:
        """This diff plus `other`, whose paths history all leaves out."""
        found = other.paths()
        if not found:
            return self
        other = other.shown(MOST_EXCLUDED)
        return FsDiff(
            _joined(self.writes, other.writes), _joined(self.mods, other.mods),
            _joined(self.deletes, other.deletes), self.truncated or other.truncated, other.paths(),
        )  # fmt: skip


def fs_diff(changes: Iterable[Change]) -> FsDiff:
    """Sort `changes` (directories among them) by the rules above."""
    writes, mods, deletes, others = [], [], [], []
    for change in changes:
        if change.old.kind is Kind.ABSENT and change.new.kind is Kind.FILE:  # the commonest case
            writes.append(change.path)
        elif change.old != change.new:
            others.append(change)
    held_before = _parents(change.path for change in others if change.old.kind is not Kind.ABSENT)
    now = (change.path for change in others if change.new.kind is not Kind.ABSENT)
    hold_now = _parents([*now, *writes]) if others else set()
    for path, old, new in others:
        was = _is_listed(old.kind, path, held_before)
        is_now = _is_listed(new.kind, path, hold_now)
        if old.kind is new.kind is Kind.DIRECTORY:
            continue  # a directory's mode changed: kept in history, not listed here
        if was and is_now and Kind.DIRECTORY not in (old.kind, new.kind):
            mods.append(path)
            continue
        if was:
            deletes.append(path)
        if is_now:
            writes.append(path)
    return FsDiff(tuple(sorted(writes)), tuple(sorted(mods)), tuple(sorted(deletes)))


def _joined(one: tuple[RelPath, ...], other: tuple[RelPath, ...]) -> tuple[RelPath, ...]:
    return tuple(sorted({*one, *other})) if other else one


def absolute_texts(root: Path, paths: Sequence[RelPath]) -> tuple[list[str], bool]:
    """The paths under `root` as JSON shows them, and whether a name had to be encoded."""
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    return _texts([prefix + path for path in paths])


def relative_texts(paths: Sequence[RelPath]) -> tuple[list[str], bool]:
    return _texts(paths)


def _texts(paths: Sequence[bytes]) -> tuple[list[str], bool]:
    texts, any_encoded = [], False
    for path in paths:
        text, encoded = to_text(path)
        texts.append(text)
        any_encoded = any_encoded or encoded
    return texts, any_encoded


def _parents(paths: Iterable[RelPath]) -> set[RelPath]:
    """Every directory that holds one of `paths`, at any depth."""
    found: set[RelPath] = set()
    last = b""
    for path in paths:
        above = RelPath(path.rpartition(b"/")[0])
        if above == last:
            continue
        last = above
        while above and above not in found:  # else all above it are, too
            found.add(above)
            above = parent(above)
    return found


def _is_listed(kind: Kind, path: RelPath, holding: set[RelPath]) -> bool:
    if kind is Kind.DIRECTORY:
        return path not in holding
    return kind is not Kind.ABSENT
