"""Read and replace one file of the user's settings.

The file is replaced whole and atomically, and only if it still holds the bytes that were read. A
symlink stays: its target is replaced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from substrate.errors import ChangedMeanwhileError, RefusedError
from substrate.system import umask
from substrate.system.files import fsync_dir, read_bytes_or_none, real_path, write_atomic


class SettingsFile(NamedTuple):
    """A settings file as it was read."""

    #: As the agent names it.
    path: Path
    #: Where the bytes are, symlinks resolved.
    real: Path
    #: None: there is no such file.
    data: bytes | None
    text: str

    @property
    def is_there(self) -> bool:
        return self.data is not None


def read(path: Path) -> SettingsFile:
    """The file, or an empty one; `RefusedError` if it cannot be read as text."""
    real = Path(real_path(path))
    try:
        data = read_bytes_or_none(real)
        return SettingsFile(path, real, data, (data or b"").decode())
    except UnicodeDecodeError:
        raise RefusedError(
            f"{path} is not UTF-8 text, so nothing was changed", hint="save it as UTF-8 first"
        ) from None
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from error


def leads_out(file: SettingsFile, project: Path) -> bool:
    """Whether a settings file of the project is a link to a file outside of it."""
    is_of_project = file.path.is_relative_to(project)
    return is_of_project and not file.real.is_relative_to(Path(real_path(project)))


def refuse_unwritable(file: SettingsFile) -> None:
    """`RefusedError` if `replace` could not put another file in its place."""
    if file.data is None:
        directory = file.real.parent
        while not directory.exists() and directory != directory.parent:
            directory = directory.parent
        if not directory.is_dir() or not os.access(directory, os.W_OK):
            raise RefusedError(
                f"{file.path} cannot be created: {directory} is not writable for you",
                hint="check its owner and permissions",
            )
        return
    found = os.stat(file.real)
    if not found.st_mode & stat.S_IWUSR or not os.access(file.real, os.W_OK):
        raise RefusedError(f"{file.path} is read-only", hint=f"chmod u+w {file.real}")
    if not os.access(file.real.parent, os.W_OK):
        raise RefusedError(f"{file.real.parent} is not writable for you: {file.path} stays")
    if found.st_nlink > 1:
        raise RefusedError(
            f"{file.path} has {found.st_nlink} hard links, and replacing it would part them",
            hint="make it a file of its own, or a symlink",
        )
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise RefusedError(
            f"{file.path} belongs to another user (uid {found.st_uid})",
            hint="connect as that user",
        )


def replace(file: SettingsFile, text: str) -> None:
    """Make the file hold `text`; `ChangedMeanwhileError` if it changed since it was read."""
    refuse_unwritable(file)
    mode = (
        0o666 & ~umask.current() if file.data is None else stat.S_IMODE(os.stat(file.real).st_mode)
    )
    _refuse_changed(file)
    write_atomic(file.real, text.encode(), mode=mode)


def make_directories(file: SettingsFile) -> tuple[str, ...]:
    """Create the directories above the file; returns those that were not there, outermost first."""
    missing: list[Path] = []
    directory = file.real.parent
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for directory in reversed(missing):
        os.mkdir(directory)
    return tuple(str(directory) for directory in reversed(missing))


def delete(file: SettingsFile) -> None:
    """Remove the file; `ChangedMeanwhileError` if it changed since it was read."""
    _refuse_changed(file)
    os.unlink(file.real)
    fsync_dir(file.real.parent)


def remove_empty(directories: set[str]) -> None:
    """Remove those of `directories` that are empty, the innermost first."""
    for directory in sorted(directories, key=len, reverse=True):
        try:
            os.rmdir(directory)
        except OSError:  # not empty, or already gone
            continue


def _refuse_changed(file: SettingsFile) -> None:
    if Path(real_path(file.path)) != file.real or read_bytes_or_none(file.real) != file.data:
        raise ChangedMeanwhileError(
            f"{file.path} changed while it was being edited, so it was left as it is",
            hint="try again",
        )
