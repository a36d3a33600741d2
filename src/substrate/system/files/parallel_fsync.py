"""Making many files durable, several at a time (`system/at_once.py`).

To sync the whole file system instead is a wait for everybody else's work as well, and for what is
about to be removed.
"""

from __future__ import annotations

import os

from substrate.system.at_once import AtOnce
from substrate.system.descriptors import share
from substrate.system.files import fsync_fd

#: A sync is worth a thread sooner than a removal is.
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
        kept, self._kept = self._kept, []
        try:
            with AtOnce(_SEVERAL) as several:
                several.for_each(fsync_fd, kept)
        except OSError as error:
            self._errors.append(error)
        finally:
            # Not by the threads: each call of theirs is a turn that they must wait for.
            for fd in kept:
                os.close(fd)
