"""``index.lock``: git's own lock on the user's index, during an arrival or a rewrite.

The lock is a dangling symlink whose target names its owner: made and marked in one step, so that a
kill cannot leave a lock of unknown origin, and without a sync. To git any entry with that name is a
lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from substrate.errors import LockedError
from substrate.system import clock
from substrate.system.files import read_bytes_or_none, write_all

NAME = "index.lock"
#: The owners, as a lock begins with them.
ARRIVAL, REWRITE = "substrate applies ", "substrate rewrite "
_LONGEST_MARK_BYTES = 64
_TICK_S = 0.01
#: Staging something, or our own arrival, takes a few milliseconds.
_YOUNG_NS = 500_000_000
_YOUNG_TICK_S = 0.005
#: The precision of file system clocks.
_CLOCK_NS = 20_000_000


class IndexLock:
    """Keeps every git from changing the index of `git_dir`. `owner`: `ARRIVAL` or `REWRITE`."""

    def __init__(self, git_dir: Path, owner: str) -> None:
        self.path = git_dir / NAME
        self._owner = owner
        self._is_held = False

    def acquire(self, name: str, patience_s: float = 0.0) -> None:
        """`LockedError` if another program holds it for longer than `patience_s`; `OSError` if the
        file system allows no lock. `name` follows the owner's mark."""
        deadline = clock.monotonic_ns() + int(patience_s * 1e9)
        while True:
            try:
                self._appear(self._owner + name)
            except FileExistsError:
                if clock.monotonic_ns() >= deadline:
                    raise LockedError(
                        f"the index is locked: {self.path} exists",
                        hint="another git is at work here; if none is, remove that file",
                    ) from None
                clock.sleep(_TICK_S)
                continue
            self._is_held = True
            return

    def _appear(self, text: str) -> None:
        try:
            os.symlink(text, self.path)
        except FileExistsError:
            raise
        except OSError:
            if self._owner != REWRITE:
                raise
            self._appear_as_file(text)  # a rewrite does not run without the lock

    def _appear_as_file(self, text: str) -> None:
        """Where there are no symlinks: equally exclusive, but empty for a moment. A kill at that
        point leaves a lock that only the user can judge; it is reported like any lock of git."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(fd, text.encode())
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def adopt(self, name: str) -> None:
        """After a crash: take over our own lock; `LockedError` if another program holds it."""
        if not os.path.lexists(self.path):
            self.acquire(name)
            return
        if not self.is_ours():
            raise LockedError(
                f"the index is locked by another git: {self.path}",
                hint="wait for it (or remove that file if none is running), then try again",
            )
        self._is_held = True

    def is_ours(self) -> bool:
        """Whether the existing lock has our owner's mark."""
        mark = os.fsencode(self._owner)
        with suppress(OSError):
            return os.fsencode(os.readlink(self.path)).startswith(mark)
        try:
            # A FIFO of that name would block a plain read for ever.
            return (read_bytes_or_none(self.path, _LONGEST_MARK_BYTES) or b"").startswith(mark)
        except OSError:
            return False

    def release(self) -> None:
        """Remove the lock if this object holds it."""
        if self._is_held:
            self.path.unlink(missing_ok=True)
            self._is_held = False

    def clear_left(self) -> None:
        """Remove the lock if it is of our owner: after a crash, when no such owner can be at work.

        A lock of git's own stays: a user may have removed ours, as git advises, and continued.
        """
        with suppress(OSError):
            if self.is_ours():
                self.path.unlink()


@contextmanager
def held(git_dir: Path, patience_s: float = 0.0) -> Iterator[None]:
    """For an arrival, inside the workspace's lock: no other process can hold a lock of ours.

    `LockedError` if git holds it longer than `patience_s`. On a file system without symlinks there
    is no lock.
    """
    lock = IndexLock(git_dir, ARRIVAL)
    is_held = True
    try:
        lock.acquire(str(os.getpid()), patience_s)
    except OSError:
        is_held = False
    try:
        yield
    finally:
        # The change is done. A lock that cannot be removed now is removed by the next command.
        if is_held:
            lock.clear_left()


def wait_while_young(git_dir: Path) -> None:
    """Wait up to 0.5 s for a fresh index.lock to disappear."""
    lock = git_dir / NAME
    deadline = clock.monotonic_ns() + _YOUNG_NS
    while _is_young(lock) and clock.monotonic_ns() < deadline:
        clock.sleep(_YOUNG_TICK_S)


def _is_young(lock: Path) -> bool:
    try:
        # Ignore a lock with a time in the future: every command would wait for it.
        return -_CLOCK_NS < clock.now_ns() - os.lstat(lock).st_mtime_ns < _YOUNG_NS
    except OSError:
        return False
