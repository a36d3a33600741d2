"""Where `.ctx` is: the nearest one at or above a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from substrate.errors import NotFoundError, RefusedError, WorkspaceError

CTX_NAME = ".ctx"


def find_ctx(start: Path) -> Path | None:
    """The nearest ``.ctx`` at or above `start`."""
    here = Path(os.path.realpath(start))
    for directory in (here, *here.parents):
        if (directory / CTX_NAME).is_dir():
            return directory / CTX_NAME
    return None


def require_ctx(start: Path) -> Path:
    found = find_ctx(start)
    if found is None:
        raise NotFoundError("there is no .ctx directory here or above", hint="run `ctx init` first")
    return found


def refuse_closed(directory: Path) -> None:
    """One that may not even be read is somebody else's: say so, not which file was refused."""
    if not os.access(directory, os.R_OK | os.X_OK):
        raise RefusedError(
            f"{directory} is closed to you: it belongs to uid {os.stat(directory).st_uid}",
            hint="work in a clone of your own, where `ctx init` makes another",
        )


def refuse_links(directory: Path, names: Iterable[str]) -> None:
    """None of the directories `names` in a ``.ctx`` may be a link: a repository can bring a
    ``.ctx`` along, and what we write would land wherever it says.
    """
    for name in names:
        if os.path.islink(directory / name):
            raise WorkspaceError(
                f"{directory / name} is a link and in the way of the directory",
                hint="remove the link",
            )
