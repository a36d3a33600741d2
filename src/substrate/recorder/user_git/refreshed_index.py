"""Replace the real index with one that a command refreshed in its world, as git would.

After a checkout in a world, the world's index has the stat data of the files. Without it, every
later ``git status`` would read them again. It stages nothing new, so it has the lowest priority: it
is installed after everything else has arrived, under git's own lock, and only if it matches the
real files.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from substrate.errors import LockedError
from substrate.model import RelPath
from substrate.objects.index import FileStat, Fresh, index_lock, write_like
from substrate.system.files import read_bytes_or_none
from substrate.workspace import Workspace
from substrate.workspace.paths import Stamp, Walker, stamp

INDEX = RelPath(b".git/index")


def put_in_place(workspace: Workspace, upper: Path, fresh: Fresh, stood: Stamp | None) -> bool:
    """Returns whether it was installed. `stood`: the real index when the world started."""
    root = workspace.root
    if workspace.git_dir != root / ".git" or not fresh.stats or not fresh.is_all:
        return False
    if not _is_true(os.fsencode(root), fresh):
        return False
    # Written beside the layer: a leftover is removed with the layer, and the lock is held briefly.
    made = upper.parent / "fresh-index"
    try:
        parent, name = Walker(root).parent_of(INDEX)
        with parent:
            source = upper / os.fsdecode(INDEX)
            data, times = read_bytes_or_none(source), source.lstat()
            if data is None:
                return False
            if not stat.S_ISREG(times.st_mode):
                return False
            stands = parent.lstat(name)
            write_like(made, data, stands, (times.st_atime_ns, times.st_mtime_ns))
            with index_lock.held(workspace.git_dir):
                if stamp(parent.lstat(name)) != stood:
                    return False
                os.rename(made, name, dst_dir_fd=parent.fd)
                return True
    except (LockedError, OSError):
        return False
    finally:
        with suppress(OSError):
            made.unlink()


def _is_true(root: bytes, fresh: Fresh) -> bool:
    """Whether the index matches the real files.

    This includes racy entries, recorded in the same second as the file's last write: with the new
    index git would trust them, but the file may have been replaced after the world saw it.
    """
    noted = {**fresh.unsure, **fresh.stats}
    return all(_is_so(root, name, one) for name, one in noted.items())


def _is_so(root: bytes, name: bytes, noted: FileStat) -> bool:
    try:
        at = os.lstat(os.path.join(root, name))
    except OSError:
        return False
    stands = (
        *divmod(at.st_ctime_ns, 1_000_000_000), *divmod(at.st_mtime_ns, 1_000_000_000),
        at.st_ino, at.st_uid, at.st_gid, at.st_size,
    )  # fmt: skip
    return noted == tuple(number & 0xFFFFFFFF for number in stands)
