"""Making many files durable, several at a time (`system/process/thread_fanout.py`).

Syncing the whole file system instead would also wait for other processes' writes, and for files
that are about to be removed.
"""

from __future__ import annotations

import os

from substrate.system.files.fd_budget import share
from substrate.system.files.files import fsync_fd
from substrate.system.process import AtOnce

#: A sync justifies a thread sooner than a removal does.
_SEVERAL = 8
#: Keep this many files open and sync them together, if this process may open that many: a sync
#: while other files are still being written makes the file system write small pieces, and each
#: batch starts its threads again.
_MOST_KEPT = 1200


class ManySyncs:
    """Takes open descriptors; syncs and closes them in batches, the last batch in `finish`."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._most_kept = share(_MOST_KEPT, 3)
        self._errors: list[OSError] = []

    def add(self, fd: int) -> None:
        """Takes ownership of `fd`."""
        self._kept.append(fd)
        if len(self._kept) >= self._most_kept:
            self._sync_kept()

    def finish(self) -> None:
        """Wait until everything is on disk; raises the first `OSError` that occurred."""
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
            # Not in the threads: each of their calls would have to wait for the interpreter lock.
            for fd in kept:
                os.close(fd)
