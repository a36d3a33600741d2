"""Where `.ctx` is: the nearest one at or above a directory."""

from __future__ import annotations

import os
from pathlib import Path

from substrate.errors import NotFoundError

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
