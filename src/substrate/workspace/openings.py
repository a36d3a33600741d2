"""Directories of ours that are shut (mode 0555, 0000): opened for the moment, then shut again.

Without root, nothing can be renamed in or out of a directory its owner may not write to. The
owner may change the mode, though. Each such change is written down in the scratch directory
first, so that a crash in between leaves a note for `resume` to put the mode back.
"""

from __future__ import annotations

import base64
import json
import os
import stat

from substrate.model.paths import RelPath
from substrate.system.files import write_all
from substrate.workspace.dirwalk import SEARCH, Directory, Walker

_NOTES = b"openings"


class Openings:
    """The directories that stand open now, with the mode each shall have in the end."""

    def __init__(self, scratch: Directory) -> None:
        self._scratch = scratch
        #: path -> (mode for the moment, mode in the end)
        self._open: dict[RelPath, tuple[int, int]] = {}
        self._read_notes()

    def open(self, here: Directory, name: bytes, path: RelPath, bits: int) -> None:
        """Give a directory of ours the owner bits it lacks; anything else is left as it is."""
        if not _may_be_in_the_way():
            return
        try:
            at = here.lstat(name)
        except OSError:
            return  # whoever walks on gets the real error
        mode = stat.S_IMODE(at.st_mode)
        shut = stat.S_ISDIR(at.st_mode) and mode & bits != bits
        if shut and at.st_uid == os.geteuid():
            self.promise(path, mode | 0o700, self.final_mode(path, mode))
            here.chmod(name, mode | 0o700)

    def promise(self, path: RelPath, for_now: int, in_the_end: int) -> None:
        """Note, durably, that the directory will have a passing mode from here on."""
        if self._open.get(path) == (for_now, in_the_end):
            return
        self._open[path] = (for_now, in_the_end)
        self._note([base64.b64encode(path).decode("ascii"), for_now, in_the_end])

    def final_mode(self, path: RelPath, found: int) -> int:
        """The mode a directory really has: `found`, unless that is our passing one."""
        for_now, in_the_end = self._open.get(path, (-1, -1))
        return in_the_end if found == for_now else found

    def forget(self, path: RelPath) -> None:
        """The directory is gone."""
        if self._open.pop(path, None) is not None:
            self._note([base64.b64encode(path).decode("ascii")])

    def shut_all(self, walker: Walker) -> None:
        """Give every directory its final mode, deepest first; one that somebody else changed
        meanwhile, or removed, is left alone."""
        for path in sorted(self._open, key=lambda p: p.count(b"/"), reverse=True):
            for_now, in_the_end = self._open[path]
            try:
                parent, name = walker.parent_of(path, SEARCH)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with parent:
                mode = parent.lstat(name).st_mode if parent.exists(name) else 0
                if stat.S_ISDIR(mode) and stat.S_IMODE(mode) == for_now:
                    parent.chmod(name, in_the_end)
        self._open.clear()
        if self._scratch.exists(_NOTES):
            self._scratch.unlink(_NOTES)

    def _note(self, line: list[object]) -> None:
        fd = self._scratch.open(_NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(fd, json.dumps(line).encode() + b"\n")
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
                except ValueError:
                    continue  # the last line, torn: its directory was not yet opened
                path = RelPath(base64.b64decode(path_b64))
                if modes:
                    self._open[path] = (int(modes[0]), int(modes[1]))
                else:
                    self._open.pop(path, None)


def _may_be_in_the_way() -> bool:
    """Modes do not stop root, and Windows has none."""
    return hasattr(os, "geteuid") and os.geteuid() != 0
