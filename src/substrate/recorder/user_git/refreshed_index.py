"""An index that a command refreshed in its world, put in place of the real one as git would.

After a checkout in a world the index knows the files as they were there: without this every later
``git status`` would read them again. It says nothing new, so it gives way to everybody: it comes
when all else has arrived, under git's own lock, and only if it is true of the real files.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from substrate.errors import LockedError
from substrate.model.paths import RelPath
from substrate.objects.index_sameness import FileStat, Fresh
from substrate.system.files import fsync_fd, read_bytes_or_none, write_all
from substrate.workspace import index_lock
from substrate.workspace.dirwalk import Walker
from substrate.workspace.locate import Workspace
from substrate.workspace.newer import Stamp, stamp

INDEX = RelPath(b".git/index")


def put_in_place(workspace: Workspace, upper: Path, fresh: Fresh, stood: Stamp | None) -> bool:
    """Whether it came. `stood`: what the real one looked like when the world started."""
    root = workspace.root
    if workspace.git_dir != root / ".git" or not fresh.stats or not fresh.is_all:
        return False
    if not _is_true(os.fsencode(root), fresh):
        return False
    # Written beside the layer: what a kill leaves there goes with it, and the lock is held briefly.
    made = upper.parent / "fresh-index"
    try:
        parent, name = Walker(root).parent_of(INDEX)
        with parent:
            _write(made, upper / os.fsdecode(INDEX), parent.lstat(name))
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


def _write(made: Path, source: Path, stood: os.stat_result) -> None:
    """As the world's, for whoever the real one belongs to."""
    data, times = read_bytes_or_none(source), source.lstat()
    if data is None or not (stat.S_ISREG(stood.st_mode) and stat.S_ISREG(times.st_mode)):
        raise FileNotFoundError(source)
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        os.fchown(fd, stood.st_uid, stood.st_gid)
        os.fchmod(fd, stat.S_IMODE(stood.st_mode))
        # By its time git knows which files may have been written since.
        os.utime(fd, ns=(times.st_atime_ns, times.st_mtime_ns))
        fsync_fd(fd)
    finally:
        os.close(fd)


def _is_true(root: bytes, fresh: Fresh) -> bool:
    """Also of what git noted in the second of a file's writing and was not sure of, but would
    trust from now on: the world may have seen it before another was put in its place."""
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
