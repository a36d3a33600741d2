"""Directories of ours that their mode closes (0555, 0000): opened temporarily, then restored.

Without root, nothing can be renamed into or out of a directory its owner may not write to. The
owner may change the mode, though. Each such change is recorded in the scratch directory first, so
that after a crash `resume` can restore the mode.

What is kept below the project (trash, held worlds) stays open as long as it exists, because `rm -rf
project` enters it, too: see `open_up`.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from substrate.model import ROOT, RelPath, is_within, join
from substrate.system.files import write_all
from substrate.workspace.paths.nofollow_path import SEARCH, Directory, Walker

_NOTES = b"openings"


class Openings:
    """The directories that are open now, with the final mode of each."""

    def __init__(self, scratch: Directory) -> None:
        self._scratch = scratch
        #: path -> (temporary mode, final mode)
        self._open: dict[RelPath, tuple[int, int]] = {}
        self._read_notes()

    def open(self, here: Directory, name: bytes, path: RelPath, bits: int) -> None:
        """Give a directory of ours the owner bits it lacks; anything else is left as it is."""
        if not _may_be_in_the_way():
            return
        try:
            at = here.lstat(name)
        except OSError:
            return  # the walk into it gets the real error
        mode = stat.S_IMODE(at.st_mode)
        shut = stat.S_ISDIR(at.st_mode) and mode & bits != bits
        if shut and at.st_uid == os.geteuid():
            try:
                self.promise(path, mode | 0o700, self.final_mode(path, mode))
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                    raise
                return  # a read-only copy: what its modes allow can still be read
            here.chmod(name, mode | 0o700)

    def promise(self, path: RelPath, for_now: int, in_the_end: int) -> None:
        """Record, durably, that the directory has a temporary mode from now on."""
        self.promise_all([(path, for_now, in_the_end)])

    def promise_all(self, promises: Iterable[tuple[RelPath, int, int]]) -> None:
        """The same for several directories, with one sync."""
        news = {path: modes for path, *modes in promises if self._open.get(path) != tuple(modes)}
        self._note([[base64.b64encode(path).decode("ascii"), *news[path]] for path in news])
        self._open.update({path: (for_now, end) for path, (for_now, end) in news.items()})

    def final_mode(self, path: RelPath, found: int) -> int:
        """The mode a directory really has: `found`, unless that is our temporary one."""
        for_now, in_the_end = self._open.get(path, (-1, -1))
        return in_the_end if found == for_now else found

    def forget(self, path: RelPath) -> None:
        """Call this when the directory no longer exists."""
        if self._open.pop(path, None) is not None:
            self._note([[base64.b64encode(path).decode("ascii")]])

    def shut_all(self, walker: Walker) -> None:
        """Give every directory its final mode, deepest first.

        A directory that another process changed or removed is left alone.
        """
        self.shut(walker, ROOT)
        self._open.clear()
        if self._scratch.exists(_NOTES):
            self._scratch.unlink(_NOTES)

    def shut(self, walker: Walker, within: RelPath) -> None:
        """The same for `within` and everything below it. The notes stay."""
        chosen = [path for path in self._open if is_within(path, within)]
        for path in sorted(chosen, key=lambda p: p.count(b"/"), reverse=True):
            for_now, in_the_end = self._open[path]
            try:
                parent, name = walker.parent_of(path, SEARCH)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with parent:
                mode = parent.lstat(name).st_mode if parent.exists(name) else 0
                if stat.S_ISDIR(mode) and stat.S_IMODE(mode) == for_now:
                    parent.chmod(name, in_the_end)

    def _note(self, lines: list[list[object]]) -> None:
        if not lines:
            return
        fd = self._scratch.open(_NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            os.fsync(fd)
        finally:
            os.close(fd)

    def _read_notes(self) -> None:
        try:
            fd = self._scratch.open(_NOTES, os.O_RDONLY)
        except FileNotFoundError:
            return
        with os.fdopen(fd, "rb") as file:
            for raw in file:
                try:
                    path_b64, *modes = json.loads(raw)
                    path = RelPath(base64.b64decode(path_b64, validate=True))
                    if modes:
                        for_now, in_the_end = map(int, modes)
                        self._open[path] = (for_now, in_the_end)
                    else:
                        self._open.pop(path, None)
                except (ValueError, TypeError):
                    # A torn last line: its directory was not opened yet. Any other bad line is
                    # damage, and loses an exact mode.
                    continue


def has_notes(scratch: Path) -> bool:
    """Whether a directory was opened there: then the modes on disk are not the real ones."""
    return (scratch / os.fsdecode(_NOTES)).exists()


def open_up(scratch: Path, top: Path, path: RelPath = ROOT) -> None:
    """Open every directory of the caller's at and below `path` in `top`; the notes go to `scratch`.

    No symlink is followed. One sync for each level with closed directories. Without room for a note
    the directories stay as they are: the kept content is complete either way.
    """
    if not _may_be_in_the_way():
        return
    with suppress(OSError), Directory.open_root(scratch) as notes:
        openings = Openings(notes)
        base = os.fsencode(top)
        level = [path]
        while level:
            shut = [(one, mode) for one in level if (mode := _shut_mode(base, one)) is not None]
            openings.promise_all(
                (one, mode | 0o700, openings.final_mode(one, mode)) for one, mode in shut
            )
            for one, mode in shut:
                with suppress(OSError):  # removed by another process
                    os.chmod(os.path.join(base, one), mode | 0o700)
            level = [below for one in level for below in _directories(base, one)]


def _shut_mode(base: bytes, path: RelPath) -> int | None:
    """The mode of the caller's directory if it lacks owner rights; None for any other."""
    try:
        at = os.lstat(os.path.join(base, path))
    except OSError:
        return None
    is_ours = stat.S_ISDIR(at.st_mode) and at.st_uid == os.geteuid()
    return stat.S_IMODE(at.st_mode) if is_ours and at.st_mode & 0o700 != 0o700 else None


def _directories(base: bytes, path: RelPath) -> list[RelPath]:
    try:
        with os.scandir(os.path.join(base, path)) as found:
            return [join(path, one.name) for one in found if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # removed, or another user's


def _may_be_in_the_way() -> bool:
    """Modes do not stop root, and Windows has none."""
    return hasattr(os, "geteuid") and os.geteuid() != 0
