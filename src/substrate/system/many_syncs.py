"""Making many files durable, several at a time.

A journalling file system writes what all who wait at once are waiting for in one go: sixteen
waits together cost hardly more than one. To sync the whole file system instead is a wait for
everybody else's work as well, and for what is about to be removed.
"""

from __future__ import annotations

import os
import threading

from substrate.system.descriptors import share
from substrate.system.files import fsync_fd

_AT_ONCE = 16
#: Fewer are synced one after the other: starting threads takes its time, too.
_SEVERAL = 8
#: So many are kept open and then synced together, if this process may have that many: whoever
#: waits while others still write makes the file system write small pieces, and each portion
#: starts its threads anew.
_MOST_KEPT = 1200


class ManySyncs:
    """Takes open descriptors; syncs and closes them in portions, and the last in `finish`."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._most_kept = share(_MOST_KEPT, 3)
        self._errors: list[OSError] = []

    def add(self, fd: int) -> None:
        """`fd` is ours from here on."""
        self._kept.append(fd)
        if len(self._kept) >= self._most_kept:
            self._sync_kept()

    def finish(self) -> None:
        """Wait until everything is on disk; the first `OSError` that was met is raised."""
        self._sync_kept()
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _sync_kept(self) -> None:
        # This thread is one of them; for a few files it is the only one.
        count = min(_AT_ONCE, len(self._kept)) - 1 if len(self._kept) >= _SEVERAL else 0
        others = []
        for _ in range(count):
            thread = threading.Thread(target=self._work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user may have no more of them: it is done with fewer
                break
            others.append(thread)
        self._work()
        for thread in others:
            thread.join()

    def _work(self) -> None:
        while True:
            try:
                fd = self._kept.pop()
            except IndexError:
                return
            try:
                try:
                    fsync_fd(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                self._errors.append(error)
