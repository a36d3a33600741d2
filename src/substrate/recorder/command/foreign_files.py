"""Files of other users or groups: explain why a command in a world failed on them.

In an ordinary user's overlay the kernel has to copy such a file with its owner and group, and only
the user's own ids exist in the world's user namespace. Renaming the file or writing to it fails
with EOVERFLOW. A rename of another user's directory fails differently: `mv` then copies it.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import shlex
from typing import Protocol

from substrate.model import display
from substrate.recorder.session_context import Place
from substrate.world import Captured, RunOutcome

_TAIL_BYTES = 16 << 10
_MOST_ENTRIES = 1_000
_MOST_NAMED = 3
_MOST_SHOWN_CHARACTERS = 300


class Words(Protocol):
    """The parts of a request that this module needs."""

    @property
    def argv(self) -> tuple[str | bytes, ...]: ...

    @property
    def shell(self) -> str | bytes: ...


def note(place: Place, request: Words, outcome: RunOutcome) -> list[str]:
    """What the user can type, if a command failed on a file of another user or group.

    Captured output shows the failure. A terminal's output is not captured: then the files that the
    command names are looked at, and the note says "if".
    """
    if outcome.isolation.strategy != "overlay" or os.geteuid() == 0:
        return []
    if _says(outcome, errno.EOVERFLOW):
        return [_sentence("", _foreign(place, request), request)]
    if outcome.exit == 0:
        return []
    found = _foreign(place, request)
    if not _is_captured(outcome):
        condition = f"if it failed with {os.strerror(errno.EOVERFLOW)!r}: "
        return [_sentence(condition, found, request)] if found else []
    # A directory is renamed by copying it, and the copy may meet files that cannot be read.
    moved = [name for name in found if os.path.isdir(os.path.join(os.fsencode(place.cwd), name))]
    is_refused_move = b"mv" in _words(request) and _says(outcome, errno.EACCES)
    return [_sentence("", moved, request)] if is_refused_move and moved else []


def _sentence(condition: str, names: list[bytes], request: Words) -> str:
    shown = ", ".join(display(name) for name in names[:_MOST_NAMED])
    listed = f" ({shown}{', …' if len(names) > _MOST_NAMED else ''})" if names else ""
    return (
        f"{condition}a world cannot rename or write to files that belong to another user or"
        f" group{listed}. To run it on the real files: {_to_type(request)}"
    )


def _to_type(request: Words) -> str:
    if request.argv:
        line = "substrate run --no-world -- " + shlex.join(map(os.fsdecode, request.argv))
    else:
        line = "substrate --no-world -c " + shlex.quote(os.fsdecode(request.shell))
    if len(line) <= _MOST_SHOWN_CHARACTERS and line.isprintable():
        return line
    return "substrate --no-world … (the same command)"


def _foreign(place: Place, request: Words) -> list[bytes]:
    """Such files in the workspace: those that the command names, by a pattern too."""
    found: dict[bytes, None] = {}
    root = os.path.join(os.fsencode(place.workspace.root), b"")
    for word in dict.fromkeys(_words(request)):
        for name in _matching(place, word)[:_MOST_ENTRIES]:
            path = os.path.normpath(os.path.join(os.fsencode(place.cwd), name))
            if path.startswith(root) and _is_foreign(path):
                found[name] = None
    return list(found)


def _matching(place: Place, word: bytes) -> list[bytes]:
    if not any(mark in word for mark in b"*?["):
        return [word]
    try:
        return sorted(fnmatch.filter(os.listdir(os.fsencode(place.cwd)), word))
    except OSError:
        return []


def _words(request: Words) -> list[bytes]:
    if request.argv:
        return [os.fsencode(word) for word in request.argv]
    text = shlex.shlex(os.fsdecode(request.shell), posix=True, punctuation_chars=True)
    text.whitespace_split = True
    try:
        return [os.fsencode(word) for word in text]
    except ValueError:  # an open quote: the shell reads it differently
        return os.fsencode(request.shell).split()


def _is_foreign(path: bytes) -> bool:
    """Whether its owner or group does not exist in the world of an ordinary user."""
    try:
        at = os.lstat(path)
    except (OSError, ValueError):
        return False
    return at.st_uid != os.geteuid() or at.st_gid != os.getegid()


def _is_captured(outcome: RunOutcome) -> bool:
    # Where both streams are one (`2>&1`), stdout is the one captured.
    return outcome.stderr is not None or (outcome.stdout is not None and not os.isatty(2))


def _says(outcome: RunOutcome, number: int) -> bool:
    said = b"\n".join(_end(captured) for captured in (outcome.stdout, outcome.stderr))
    return os.strerror(number).encode() in said


def _end(captured: Captured | None) -> bytes:
    if captured is None or captured.path is None:
        return b""
    try:
        with open(captured.path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""
