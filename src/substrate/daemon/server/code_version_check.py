"""Whether the code on disk is still the code in memory.

An upgrade replaces files under a running daemon: the modules it has loaded and those it would load
next no longer fit together. The daemon then declines calls, and a new one takes over.
"""

from __future__ import annotations

import os
import sys

from substrate.system import clock

_EVERY_NS = 1_000_000_000


class LoadedCode:
    """Remembers the files of the modules loaded so far."""

    def __init__(self, install: str) -> None:
        self._install = install + os.sep
        self._known: dict[str, tuple[int, int]] = {}
        self._looked_ns = 0
        self._is_stale = False

    def remember(self) -> None:
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.startswith(self._install):
                self._known.setdefault(path, _stamp(path))

    def is_stale(self) -> bool:
        """Checks at most once a second, so that calls do not pay for it each time."""
        now = clock.monotonic_ns()
        if not self._is_stale and now - self._looked_ns >= _EVERY_NS:
            self._looked_ns = now
            self._is_stale = any(_stamp(path) != known for path, known in self._known.items())
        return self._is_stale


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, -1)
    return found.st_mtime_ns, found.st_size
