"""Rewrite a working copy, and keep out of the way of history's own changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.rewrite.move import Outcome, Request, rewrite
from substrate.rewrite.working_copy import WorkingCopy, open_working_copy
from substrate.workspace.locate import STORE_NAME

if TYPE_CHECKING:
    from substrate.recorder.place import Place


def rewrite_working_copy(
    start: Path, request: Request, name: str | None, place: Callable[[], Place]
) -> Outcome:
    """`place` is asked for only where there is a history to keep out of the way of."""
    copy = open_working_copy(start, name)
    with nullcontext() if request.dry_run else history_waits(place, copy, "rewrite"):
        return rewrite(copy, request)


@contextmanager
def history_waits(place: Callable[[], Place], copy: WorkingCopy, purpose: str) -> Iterator[None]:
    """Hold history's lock, where there is a history of this very directory: an undo must not
    change the files that a rewrite is about to change. What the rewrite did is recorded like any
    outside edit, by the next command's scan."""
    if not (copy.root / STORE_NAME / "index" / "history.db").exists():
        yield
        return
    here = place()
    if here.workspace.root != copy.root:
        yield
        return
    with here.existing_history() as store, store.writing(purpose):
        yield
