"""Hints that hold a whole call: the one that failed, with one more option."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from substrate.errors import ConflictError
from substrate.history.reversal import Choice

if TYPE_CHECKING:
    from substrate.model import RelPath
    from substrate.recorder.session_context import Place


@contextmanager
def naming_the_call(place: Place, arguments: str, choice: Choice) -> Iterator[None]:
    """Give a conflict a hint to copy. `arguments`: what follows `substrate`, with full ids."""
    try:
        yield
    except ConflictError as error:
        call = f"substrate {arguments}{_options(place, choice)}"
        error.hint = (
            f"to keep what is there now: `{call} --take ours`;"
            f" to bring back the old: `{call} --take theirs`"
        )
        if not error.is_all:
            error.hint += f"; to leave these paths out: `{call} --skip-conflicts`"
        raise


def _options(place: Place, choice: Choice) -> str:
    out = "".join(f" --path {shlex.quote(typed_path(place, path))}" for path in choice.paths)
    return out if choice.branches is None else f"{out} --{choice.branches.value}"


def typed_path(place: Place, path: RelPath) -> str:
    """A path of the workspace as the user types it in the current directory."""
    there = os.path.join(os.fsencode(place.workspace.root), path)
    typed = os.path.relpath(there, os.fsencode(place.cwd.resolve()))
    return os.fsdecode(typed if not typed.startswith(b"-") else b"./" + typed)
