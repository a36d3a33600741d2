"""A baseline that was taken while its first command ran already: what of it the command saw.

    ──── start ──── baseline looks ──── end        untouched since the start when it looked: seen
            └─ edit ─┘                             edited before it looked: nobody can tell

The times of change that it saw are in the stat cache. A later scan may have put newer ones there:
then less is certain, never more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from substrate.history.store import HistoryStore
from substrate.model.paths import RelPath, ancestors, split
from substrate.workspace.stat_cache import CacheDamagedError, Payload, StatCache


def perhaps_unseen(store: HistoryStore, paths: Iterable[RelPath], start_ns: int) -> list[RelPath]:
    """Those of `paths` of which the baseline may say something else than a command found there that
    started at `start_ns`, by the clock of files."""
    looked = _Looked(StatCache.load(store.stat_cache_file), start_ns)
    return [path for path in paths if not looked.was_as_at_start(path)]


class _Looked:
    def __init__(self, cache: StatCache, start_ns: int) -> None:
        self._cache = cache
        self._start_ns = start_ns
        #: Directories that were looked at, opened; None: there is no record of it.
        self._opened: dict[str, Payload | None] = {}

    def was_as_at_start(self, path: RelPath) -> bool:
        for above in reversed(ancestors(path)):
            directory = os.fsdecode(above)
            if self._directory(directory) is None:
                return self._was_not_there(directory)
            # Who is renamed has a new time of change; the root goes nowhere.
            if not self._is_old(directory):
                return False
        parent, name = split(path)
        here = self._directory(os.fsdecode(parent))
        entry = None if here is None else here.entries.get(os.fsdecode(name))
        if entry is None:
            return self._is_old(os.fsdecode(parent))
        if entry.is_dir:
            return self._is_old(os.fsdecode(path))
        return entry.stat[3] < self._start_ns

    def _is_old(self, directory: str) -> bool:
        """Whether no name has come to it or gone since, and it stood there."""
        found = self._directory(directory)
        return found is not None and found.ctime_ns < self._start_ns

    def _was_not_there(self, directory: str) -> bool:
        """Of one without a record: neither then nor at the start, and not looked at in vain."""
        above, _, name = directory.rpartition("/")
        here = self._directory(above)
        entry = None if here is None else here.entries.get(name)
        is_lost = entry is not None and entry.is_dir and not entry.reason
        return not is_lost and self._is_old(above)

    def _directory(self, path: str) -> Payload | None:
        if path not in self._opened:
            record = self._cache.dirs.get(path)
            try:
                self._opened[path] = None if record is None else record.open()
            except CacheDamagedError:
                self._opened[path] = None
        return self._opened[path]
