"""Rewrite a working copy, and keep out of the way of history's own changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from substrate.errors import NotFoundError
from substrate.recorder.place import Place
from substrate.rewrite.move import Outcome, Request, rewrite
from substrate.rewrite.working_copy import WorkingCopy, open_working_copy


def rewrite_working_copy(
    place: Place, request: Request, repo: Path | None, name: str | None
) -> Outcome:
    copy = open_working_copy(repo or place.cwd, name)
    with nullcontext() if request.dry_run else history_waits(place, copy, "rewrite"):
        return rewrite(copy, request)


@contextmanager
def history_waits(place: Place, copy: WorkingCopy, purpose: str) -> Iterator[None]:
    """Hold history's lock, where there is a history of this very directory: an undo must not
    change the files that a rewrite is about to change. What the rewrite did is recorded like any
    outside edit, by the next command's scan."""
    if place.workspace.root != copy.root:
        yield
        return
    try:
        with place.existing_history() as store, store.writing(purpose):
            yield
    except NotFoundError:
        if place.workspace.store.exists():
            raise
        yield
