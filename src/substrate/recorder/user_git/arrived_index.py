"""Update an index that arrived together with files of the same command.

In the world, git recorded the files' stat data in the index. Arriving gave the files new ctimes: if
that was in a later second, a git that does not refresh its index first (`git merge --abort`,
`git cherry-pick --abort`) would refuse to touch them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from substrate.errors import LockedError
from substrate.model import Kind, RelPath
from substrate.objects.index import index_lock, with_change_times, write_like
from substrate.recorder.user_git.refreshed_index import INDEX
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import LayerDiff
from substrate.workspace.paths import Walker

_SECOND_NS = 1_000_000_000


def bring_up_to_date(root: Path, upper: Path, diff: LayerDiff) -> bool:
    """After the arrival of `diff`. Returns whether an index was written again.

    An index that cannot be locked is left unchanged.
    """
    is_written = False
    for one in diff.entries:
        is_index = one.path == INDEX or one.path.endswith(b"/" + INDEX)
        if is_index and one.is_there and one.new.kind is Kind.FILE:
            top = one.path.removesuffix(INDEX)
            files = _changed_later(root, top, diff)
            if files:
                with suppress(LockedError, OSError):
                    is_written = _bring(root, upper, one.path, files) or is_written
    return is_written


def _changed_later(root: Path, top: bytes, diff: LayerDiff) -> dict[bytes, os.stat_result]:
    """Files below `top` whose ctime is in another second than their mtime."""
    found: dict[bytes, os.stat_result] = {}
    git = top + b".git/"
    for one in diff.entries:
        is_leaf = one.is_there and one.new.kind in (Kind.FILE, Kind.SYMLINK)
        if not is_leaf or not one.path.startswith(top) or one.path.startswith(git):
            continue
        with suppress(OSError):
            at = os.lstat(os.path.join(os.fsencode(root), one.path))
            if at.st_ctime_ns // _SECOND_NS != at.st_mtime_ns // _SECOND_NS:
                found[one.path[len(top) :]] = at
    return found


def _bring(root: Path, upper: Path, path: RelPath, files: dict[bytes, os.stat_result]) -> bool:
    index = root / os.fsdecode(path)
    # Written beside the layer: what a kill leaves there is removed with the layer.
    made = upper.parent / "timed-index"
    parent, name = Walker(root).parent_of(path)
    try:
        with parent, index_lock.held(index.parent):
            stood, data = parent.lstat(name), read_bytes_or_none(index)
            timed = with_change_times(data, files) if data is not None else None
            if timed is not None:
                write_like(made, timed, stood, (stood.st_atime_ns, stood.st_mtime_ns))
                os.rename(made, name, dst_dir_fd=parent.fd)
            return timed is not None
    finally:
        with suppress(OSError):
            made.unlink()
