"""How soon the same paths are recorded again.

A log file that is written all day would otherwise become thousands of entries, each with the whole
file. So paths that change again and again are recorded less and less often; other paths at once.
"""

from __future__ import annotations

from collections.abc import Collection

from substrate.model import RelPath
from substrate.system import clock

_FIRST_NS = 5_000_000_000
#: More paths than this always count as new.
_MOST_PATHS = 1_000


class Pace:
    def __init__(self, longest_s: float) -> None:
        self._longest_ns = int(longest_s * 1e9)
        self._paths: frozenset[RelPath] = frozenset()
        self._recorded_ns = 0
        self._pause_ns = 0

    def not_before_ns(self, suspects: Collection[RelPath]) -> int:
        """When these may be recorded, by the monotonic clock."""
        return self._recorded_ns + self._pause_ns if self._is_known(suspects) else 0

    def recorded(self, paths: Collection[RelPath]) -> bool:
        """Note that these were recorded now. Returns whether they are new."""
        is_news = not self._is_known(paths)
        self._recorded_ns = clock.monotonic_ns()
        if is_news:
            self._paths = frozenset(paths) if len(paths) <= _MOST_PATHS else frozenset()
            self._pause_ns = 0
        else:
            self._pause_ns = min(max(_FIRST_NS, self._pause_ns * 2), self._longest_ns)
        return is_news

    def _is_known(self, paths: Collection[RelPath]) -> bool:
        return len(paths) <= _MOST_PATHS and self._paths.issuperset(paths)
