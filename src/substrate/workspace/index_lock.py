"""Git's lock on the user's index, held while a world's changes to the index and the refs arrive.

A link that leads nowhere, and says whose it is: made and marked in one step, so that a kill cannot
leave a lock that nobody dares to remove, and without a sync. To git any name there is a lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from substrate.errors import LockedError
from substrate.system import clock

_NAME = "index.lock"
_MARK = "substrate applies "
_TICK_S = 0.01


@contextmanager
def held(git_dir: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Inside the workspace's lock. `LockedError` if a git is at work for longer than that.

    A file system without links is left without a lock.
    """
    lock = git_dir / _NAME
    is_held = _acquire(lock, patience_s)
    try:
        yield
    finally:
        # What was done is done. What cannot be taken away now is by whoever comes next.
        if is_held:
            clear_left(git_dir)


def _acquire(lock: Path, patience_s: float) -> bool:
    deadline = clock.monotonic_ns() + int(patience_s * 1e9)
    while True:
        try:
            os.symlink(f"{_MARK}{os.getpid()}", lock)
            return True
        except FileExistsError:
            if clock.monotonic_ns() >= deadline:
                raise LockedError(
                    f"the index is locked: {lock} exists",
                    hint="another git is at work here; if none is, remove that file",
                ) from None
        except OSError:
            return False
        clock.sleep(_TICK_S)


def is_an_arrivals(git_dir: Path) -> bool:
    """Whether the lock that stands there is one of ours."""
    try:
        return os.readlink(git_dir / _NAME).startswith(_MARK)
    except OSError:
        return False


def clear_left(git_dir: Path) -> None:
    """Inside the workspace's lock, also after a crash: nobody else can hold one that is ours.

    One of git's own stays: somebody may have removed ours, as git advises, and gone on.
    """
    with suppress(OSError):
        if is_an_arrivals(git_dir):
            (git_dir / _NAME).unlink()
