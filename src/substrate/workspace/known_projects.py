"""The projects with a history that this user has: a small file for each, in `$SUBSTRATE_HOME`.

`projects/<hash of the root>` holds the root. It is only a note: the store is in the project.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from substrate.system.files import files

_DIRECTORY = "projects"
_NAME_DIGITS = 24


def note(home: Path, root: Path) -> None:
    """Remember a project. Costs one `stat` if it is known; an error never fails the command."""
    file = _file(home, root)
    if not os.path.exists(file):
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_atomic(file, os.fsencode(root), durable=False)


def known(home: Path) -> list[Path]:
    """The roots of all remembered projects, sorted; those that are gone, too."""
    found = []
    with suppress(OSError):
        for name in os.listdir(home / _DIRECTORY):
            with suppress(OSError):
                root = Path(os.fsdecode((home / _DIRECTORY / name).read_bytes()))
                if _file(home, root).name == name:  # otherwise a half-written or foreign file
                    found.append(root)
    return sorted(found)


def forget(home: Path, root: Path) -> None:
    """Forget a project; nothing in it is touched."""
    _file(home, root).unlink(missing_ok=True)


def _file(home: Path, root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:_NAME_DIGITS]
    return home / _DIRECTORY / name
