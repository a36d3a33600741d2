"""Rewrite a working copy while holding the lock of its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.rewrite.execute import (
    Request,
    RewriteOutcome,
    WorkingCopy,
    open_working_copy,
    rewrite,
)
from substrate.workspace import STORE_NAME

if TYPE_CHECKING:
    from substrate.recorder.session_context import Place


def rewrite_working_copy(
    start: Path, request: Request, name: str | None, place: Callable[[], Place]
) -> RewriteOutcome:
    """`place` is called only if the working copy has a history to lock."""
    copy = open_working_copy(start, name)
    with nullcontext() if request.dry_run else history_waits(place, copy, "rewrite"):
        return rewrite(copy, request)


@contextmanager
def history_waits(place: Callable[[], Place], copy: WorkingCopy, purpose: str) -> Iterator[None]:
    """Hold history's lock, if this very directory has a history.

    An undo must not change the files that a rewrite is about to change. The next command's scan
    records what the rewrite did, like any outside edit.
    """
    if not (copy.root / STORE_NAME / "index" / "history.db").exists():
        yield
        return
    here = place()
    if here.workspace.root != copy.root:
        yield
        return
    with here.existing_history() as store, store.writing(purpose):
        yield
