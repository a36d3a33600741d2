"""One operation on a working copy from its first file to its last: its directory and the locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HalfAppliedError
from substrate.rewrite.index_lock import IndexLock, left_behind
from substrate.rewrite.working_copy import WorkingCopy
from substrate.system import ids
from substrate.system.files import remove_tree


class UnderWay(NamedTuple):
    operation_id: str
    #: For scratch files and, once announced, the journal.
    directory: Path
    lock: IndexLock


@contextmanager
def under_way(copy: WorkingCopy, *, dry_run: bool) -> Iterator[UnderWay]:
    """Inside the working copy's lock. The index is locked too, unless nothing is to change."""
    operation_id = ids.new_id("c")
    now = UnderWay(operation_id, copy.journal_dir / operation_id, IndexLock(copy))
    now.directory.mkdir(mode=0o700, parents=True)
    try:
        if not dry_run:
            now.lock.acquire(operation_id)
        yield now
    except HalfAppliedError:
        raise  # journal and lock stay for whoever finishes it
    except BaseException:
        now.lock.release()
        remove_tree(now.directory)
        raise
    now.lock.release()
    remove_tree(now.directory)


def needs_settling(copy: WorkingCopy) -> bool:
    """Whether something was left behind: cheap to ask, and makes nothing."""
    try:
        litter = any(copy.journal_dir.iterdir())
    except FileNotFoundError:
        litter = False
    return litter or bool(left_behind(copy))
