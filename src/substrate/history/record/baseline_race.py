"""A baseline taken while its first command was already running: which paths the command saw.

    ──── start ──── baseline looks ──── end        unchanged from start to look: seen
            └─ edit ─┘                             edited before the look: unknown

The ctimes that the baseline saw are in the stat cache. A later scan may have put newer ones there:
then fewer paths are certain, never more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from substrate.history.store import HistoryStore
from substrate.model import RelPath, ancestors, split
from substrate.workspace.scan import CacheDamagedError, Payload, StatCache


def perhaps_unseen(store: HistoryStore, paths: Iterable[RelPath], start_ns: int) -> list[RelPath]:
    """Paths whose state in the baseline may differ from what the command saw when it started.

    `start_ns`: the start of the command, by the clock that stamps files.
    """
    looked = _Looked(StatCache.load(store.stat_cache_file), start_ns)
    return [path for path in paths if not looked.was_as_at_start(path)]


class _Looked:
    def __init__(self, cache: StatCache, start_ns: int) -> None:
        self._cache = cache
        self._start_ns = start_ns
        #: Decoded records of directories that the scan read; None: there is no record.
        self._opened: dict[str, Payload | None] = {}

    def was_as_at_start(self, path: RelPath) -> bool:
        for above in reversed(ancestors(path)):
            directory = os.fsdecode(above)
            if self._directory(directory) is None:
                return self._was_not_there(directory)
            # A renamed directory has a new ctime; the root is not moved.
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
        """Whether the directory was there at the start and no name was added or removed since."""
        found = self._directory(directory)
        return found is not None and found.ctime_ns < self._start_ns

    def _was_not_there(self, directory: str) -> bool:
        """Whether a directory without a record was also absent, or excluded, at the start.

        False if the scan saw the directory and its record is missing.
        """
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
