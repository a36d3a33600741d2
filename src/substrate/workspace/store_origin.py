"""Whether a store was made by this user on this machine, or came with a clone or an archive.

A repository can have a stranger's ``.substrate-git`` committed, and an archive can contain one. Its
entries are not this user's, and an undo would write a stranger's bytes. So every store has a small
file beside the ledger, written at its creation:

    inodes   of the store's directory and of the file itself: they match where the store was made,
             also after a `mv`, and in a container with another home directory
    home     a random word of the ``$SUBSTRATE_HOME`` that made it: it matches in the user's copies

The ledger is not read for this: closing a second descriptor of it would drop SQLite's locks.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from substrate.system import environment
from substrate.system.files import files

#: In the store.
_MARK = "made-by"
#: In ``$SUBSTRATE_HOME``: the random word.
_HOME_WORD = "home-word"
_MOST_BYTES = 1024


def is_foreign(store: Path) -> bool:
    """Whether the store has a history that this user did not make on this machine.

    A history without its git repository came with a clone: git creates no ``.git`` in one. A
    history with it but without a mark is of an older version, or its mark was lost: the user's.
    """
    top = os.fspath(store)  # strings, not `Path`: every command runs this
    if not os.path.lexists(top + "/index/history.db"):
        return False
    made = _read_mark(top)
    if made and made.get("inodes") == _inodes(top):
        return False
    if not os.path.lexists(top + "/.git/HEAD"):
        return True
    return bool(made) and made.get("home") != (_home_word() or None)


def is_marked(store: Path) -> bool:
    return os.path.lexists(f"{store}/{_MARK}")


def leave_mark(store: Path) -> None:
    """Mark the store as made by this user, here; without a mark it is judged by its repository."""
    mark = store / _MARK
    with suppress(OSError):
        mark.unlink(missing_ok=True)
        mark.touch(mode=0o600)
        made = {"home": _home_word(makes=True), "inodes": _inodes(os.fspath(store))}
        mark.write_text(json.dumps(made) + "\n")  # in place: the inode is part of it


def _inodes(top: str) -> list[int]:
    return [os.lstat(top).st_ino, os.lstat(f"{top}/{_MARK}").st_ino]


def _read_mark(top: str) -> dict[str, object]:
    with suppress(OSError, ValueError):
        found = json.loads(files.read_bytes_or_none(Path(top, _MARK), _MOST_BYTES) or b"")
        if isinstance(found, dict):
            return found
    return {}


def _home_word(*, makes: bool = False) -> str:
    """The random word of this home; empty if there is none, or none can be made."""
    path = environment.current().substrate_home / _HOME_WORD
    word = secrets.token_hex(16)
    try:
        found = files.read_bytes_or_none(path, _MOST_BYTES) or b""
        if found or not makes:
            return found.decode("ascii", "replace").strip()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(word + "\n")
    except FileExistsError:  # another process was faster; if it has not written yet, use none
        return _home_word()
    except OSError:
        return ""
    return word
