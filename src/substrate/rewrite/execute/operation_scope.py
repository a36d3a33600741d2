"""One operation on a working copy from its first file to its last: its directory and the locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HalfAppliedError
from substrate.objects.index import REWRITE, IndexLock, index_file
from substrate.rewrite.execute.working_copy import WorkingCopy
from substrate.system import ids
from substrate.system.files import remove_tree


class UnderWay(NamedTuple):
    operation_id: str
    #: For scratch files and, once announced, the journal.
    directory: Path
    lock: IndexLock


def lock_of(copy: WorkingCopy) -> IndexLock:
    return IndexLock(copy.git_dir, REWRITE)


@contextmanager
def under_way(copy: WorkingCopy, *, dry_run: bool) -> Iterator[UnderWay]:
    """Call inside the working copy's lock. Also locks the index, except in a dry run."""
    operation_id = ids.new_id("c")
    now = UnderWay(operation_id, copy.journal_dir / operation_id, lock_of(copy))
    now.directory.mkdir(mode=0o700, parents=True)
    try:
        if not dry_run:
            now.lock.acquire(operation_id)
        yield now
    except HalfAppliedError:
        raise  # journal and lock stay for the process that finishes it
    except BaseException:
        now.lock.release()
        remove_tree(now.directory)
        raise
    now.lock.release()
    remove_tree(now.directory)


def needs_settling(copy: WorkingCopy) -> bool:
    """Whether a crash left something behind: a cheap check that creates nothing."""
    try:
        litter = any(copy.journal_dir.iterdir())
    except FileNotFoundError:
        litter = False
    return litter or lock_of(copy).is_ours() or bool(index_file.left_behind(copy.git_dir))
