"""What a command changed where no history is kept: its fs_diff, from two bounded listings.

The contents of small files are read before the command. They show which files have only a new time,
and what the command replaced or removed is kept in `$SUBSTRATE_HOME/trash`. Why there is no world
here: docs/decisions/0044-no-world-over-shared-directories.md.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.model import RelPath, display
from substrate.recorder.command import saved_small_files
from substrate.recorder.session_context import Place
from substrate.trace import FsDiff, fs_diff
from substrate.workspace.scan import MOST_ENTRIES, Listing, stat_listing

#: In the span, beside `fs_diff`.
NOTE = "fs_diff_note"
_BY_TIME = (
    "found by size, time and, for small files, content:"
    " changes that other processes made in that time are listed too"
)
_SHOWN = 4
_CUT = f"; of more than {MOST_ENTRIES:,} entries only the first were compared"


class Found(NamedTuple):
    diff: FsDiff
    note: str
    #: Files whose former content is kept, and where.
    kept: tuple[RelPath, ...] = ()
    kept_in: Path | None = None


class Unrecorded:
    """Create it before the command starts; call `changes` when the command has ended."""

    def __init__(self, place: Place) -> None:
        self._home = place.environment.substrate_home
        self._own = _own_directories(place)
        self._contents: saved_small_files.Contents = {}
        self._out_of_reach: frozenset[RelPath] = frozenset()
        self._before: Listing | None = None
        try:
            first = place.rel_path(os.fsencode(place.cwd))
            self._before = stat_listing.list_tree(place.workspace.root, first, self._own)
            self._contents = saved_small_files.read_small_files(self._before)
            self._out_of_reach = saved_small_files.out_of_reach(self._before, self._contents)
        except OSError:
            pass  # the command may run where it cannot list files

    def changes(self, command_id: str) -> Found:
        if self._before is None:
            return Found(FsDiff(truncated=True), "the directory could not be listed")
        try:
            after = stat_listing.list_again(self._before, self._own)
        except OSError as error:
            return Found(FsDiff(truncated=True), f"the directory is gone: {error.strerror}")
        is_cut = self._before.is_cut or after.is_cut
        changes = saved_small_files.really_changed(
            self._before, self._contents, stat_listing.changes(self._before, after)
        )
        note = _BY_TIME + (_CUT if is_cut else "")
        try:
            own = [change for change in changes if change.path not in self._out_of_reach]
            kept = saved_small_files.keep(self._home, command_id, self._contents, own)
        except OSError as error:
            kept, note = [], f"{note}; what it replaced could not be kept: {error.strerror}"
        where = saved_small_files.directory(self._home, command_id) if kept else None
        return Found(fs_diff(changes)._replace(truncated=is_cut), note, tuple(kept), where)


def kept_notes(found: Found) -> tuple[str, ...]:
    """What the user should see of the contents that were kept."""
    if not found.kept:
        return ()
    more = len(found.kept) - _SHOWN
    names = ", ".join(display(path) for path in found.kept[:_SHOWN])
    names += f" and {more} more" if more > 0 else ""
    why = "changed while the command ran, perhaps by another process"
    return (f"the former content of {names} is kept in {found.kept_in} ({why})",)


def _own_directories(place: Place) -> tuple[RelPath, ...]:
    """Paths below the workspace where Substrate itself writes while the command runs."""
    root = os.fsencode(place.workspace.root)
    found = []
    for path in (place.environment.substrate_home, place.environment.trace_path):
        below = os.path.relpath(os.fsencode(os.path.realpath(path)), root)
        if below != b"." and not below.startswith(b"../"):
            found.append(RelPath(below))
    return (*found, RelPath(b".substrate-git"))
