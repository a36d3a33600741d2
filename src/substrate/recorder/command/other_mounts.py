"""Mounts inside the workspace: a world does not cover them, so a change there is real at once.

The command's entry does not record such a change, and `undo` does not take it back. A note says
so. Each mount is listed before and after the command, up to a limit; beyond that limit its free
space and its free inodes are compared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.model import display
from substrate.system.linux import mounts
from substrate.workspace.scan import Listing, stat_listing

#: How many entries are listed at most, for all mounts together.
_MOST_ENTRIES = 1_000
_SHOWN = 4
_STORE = b".substrate-git"


class _Sign(NamedTuple):
    """The state of a mount before the command."""

    listing: Listing
    top: tuple[int, int, int]
    free: tuple[int, int]


class OtherMounts:
    """Create it before the command starts; call `notes` when the command has ended."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        own = os.path.join(self._root, _STORE)
        found = [
            path
            for path in mounts.below(self._root, mounts.mounts())
            if path != own and not path.startswith(own + b"/")
        ]
        self._before: dict[bytes, _Sign] = {}
        for path in found:
            try:
                self._before[path] = _sign(path, _MOST_ENTRIES // len(found))
            except OSError:
                continue  # this user may not read it

    def notes(self) -> list[str]:
        """One line for each mount on which something changed while the command ran."""
        notes = []
        for path, before in self._before.items():
            try:
                changed = self._changed(path, before)
            except OSError:
                continue  # it was unmounted
            if changed is not None:
                notes.append(self._note(path, changed))
        return notes

    def _changed(self, path: bytes, before: _Sign) -> list[bytes] | None:
        """The paths that are known to differ; None if nothing does."""
        after = stat_listing.list_again(before.listing)
        found = stat_listing.changes(before.listing, after)
        if found:
            inside = os.path.relpath(path, self._root)
            return [os.path.join(inside, change.path) for change in found]
        if not before.listing.directories and _top(path) != before.top:
            return []
        is_other_size = before.listing.is_cut and _free(path) != before.free
        return [] if is_other_size else None

    def _note(self, path: bytes, changed: list[bytes]) -> str:
        where = display(os.path.relpath(path, self._root))
        names = ", ".join(map(display, changed[:_SHOWN]))
        more = len(changed) - _SHOWN
        names += f" and {more} more" if more > 0 else ""
        return (
            f"{where} is another mount and is not protected: files there changed while the command"
            f" ran{f' ({names})' if names else ''}, and undo does not bring them back."
            " `substrate --no-world -c …` records changes there"
        )


def _sign(path: bytes, most: int) -> _Sign:
    listing = stat_listing.list_tree(Path(os.fsdecode(path)), most=most)
    return _Sign(listing, _top(path), _free(path))


def _top(path: bytes) -> tuple[int, int, int]:
    """For a single file that is mounted, and for a directory that is too large to list."""
    at = os.stat(path)
    return at.st_size, at.st_mtime_ns, at.st_ctime_ns


def _free(path: bytes) -> tuple[int, int]:
    at = os.statvfs(path)
    return at.f_bfree, at.f_ffree
