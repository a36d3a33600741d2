"""Other users' files that history cannot read, at paths where a reversal creates something.

Such a file is not in any snapshot: the reversal expects nothing at its path. The directory's owner
may replace it, and the apply then moves it to the trash as a whole. Without a reason to replace it,
it is a conflict.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from substrate.history.reversal.compute_reversal import Wish
from substrate.history.reversal.restore_excluded import Later, Turns
from substrate.history.store import HistoryStore
from substrate.model import ABSENT, Change, Kind, Node, RelPath
from substrate.workspace.paths import Walker, is_shut

_WHY = "another user's file, which cannot be read, is there now"


class Cleared(NamedTuple):
    wish: Wish
    #: The unreadable files that the apply replaces, as it will find them.
    replaced: Mapping[RelPath, Node] = {}
    #: The files that stay because the user chose the present state, with the reason.
    left: Mapping[RelPath, str] = {}


def clear(store: HistoryStore, wish: Wish, turns: Turns, later: Later) -> Cleared:
    """Decide about each such file: the apply replaces it, it stays, or it is a conflict."""
    found = _at(store, wish.changes)
    if not found:
        return Cleared(wish)
    gives_way = later in (Later.GIVES_WAY, Later.EXACT)
    stays = {path: _WHY for path in found if not gives_way and path not in turns.replaced}
    changes = [change for change in wish.changes if change.path not in stays]
    replaced = {path: node for path, node in found.items() if path not in stays}
    if later is Later.LEAVES_ALL:
        return Cleared(wish._replace(changes=changes), replaced, stays)
    conflicts = {**wish.conflicts, **stays}
    return Cleared(wish._replace(changes=changes, conflicts=conflicts), replaced)


def _at(store: HistoryStore, changes: Iterable[Change]) -> dict[RelPath, Node]:
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return {}
    found = {}
    with closing(Walker(store.anchor.top, keep=True)) as walker:
        for change in changes:
            if change.old != ABSENT or change.new == ABSENT:
                continue
            try:
                directory, name = walker.parent_of(change.path)
                with directory:
                    at = directory.lstat(name)
                    if is_shut(directory, name, at):
                        found[change.path] = Node(Kind.FILE, stat.S_IMODE(at.st_mode))
            except OSError:
                continue  # nothing is there, or its directory comes back, too
    return found
