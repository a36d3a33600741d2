"""Where `.ctx` is: the nearest one at or above a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
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
    """Refuse a directory that the user cannot read, with a message that names its owner."""
    if not os.access(directory, os.R_OK | os.X_OK):
        raise RefusedError(
            f"{directory} is closed to you: it belongs to uid {os.stat(directory).st_uid}",
            hint="work in a clone of your own, where `ctx init` makes another",
        )


def refuse_another_users(directory: Path) -> None:
    """Its owner can put links where we write next: above all not as root."""
    owner = os.stat(directory).st_uid
    if hasattr(os, "geteuid") and owner != os.geteuid():
        raise RefusedError(
            f"{directory} belongs to another user (uid {owner})",
            hint="work in a project of your own, or export the pack there and import it here",
        )


def refuse_links(directory: Path, names: Iterable[str]) -> None:
    """Refuse if one of the directories `names` in a ``.ctx`` is a symlink.

    A repository can contain a ``.ctx``, and our writes would go wherever its symlinks lead.
    """
    for name in names:
        if os.path.islink(directory / name):
            raise _in_the_way(directory / name, "of the directory")


def refuse_links_in(directory: Path) -> None:
    """The same for what is in a directory; one that is not there holds none."""
    with suppress(FileNotFoundError), os.scandir(directory) as found:
        for entry in found:
            if entry.is_symlink():
                raise _in_the_way(Path(entry.path), "")


def _in_the_way(path: Path, of_what: str) -> WorkspaceError:
    said = f"{path} is a link and in the way {of_what}".rstrip()
    return WorkspaceError(said, hint="remove the link")
