"""An index that was changed on both sides, put together in the layer before that arrives.

Several commands that each stage something at once, or a user who stages while a command does: as
long as they staged different paths there is nothing to decide.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from substrate.objects.index_merge import put_together
from substrate.recorder.fresh_index import INDEX
from substrate.system.files import fsync_fd, write_all
from substrate.workspace.dirwalk import Directory, Walker
from substrate.workspace.layer import LayerEntry
from substrate.workspace.newer import Stamp, stamp

_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Merged(NamedTuple):
    #: As it lies in the layer now.
    entry: LayerEntry
    #: The real one that it was put together with.
    stood: Stamp


def merge_into_layer(
    root: Path, upper: Path, entry: LayerEntry, base: bytes | None
) -> Merged | None:
    """None if it cannot be done; then nothing was changed. `base`: how the index was when the
    world started. Nothing may run in the world any more."""
    if base is None:
        return None
    try:
        real, name = Walker(root).parent_of(INDEX)
        with real:
            mine, stands = _read(real, name)
        layer, name = Walker(upper).parent_of(INDEX)
        with layer:
            its, lies = _read(layer, name)
            together = put_together(base, its, mine)
            if together is None:
                return None
            # The older of the two: by it git knows of which files it cannot be sure.
            written_ns = min(stands.st_mtime_ns, lies.st_mtime_ns)
            made = upper.parent / "merged-index"
            _write(made, together, lies, written_ns)
            os.rename(made, name, dst_dir_fd=layer.fd)
    except OSError:
        return None
    return Merged(entry._replace(times=(written_ns, written_ns)), stamp(stands))


def _read(directory: Directory, name: bytes) -> tuple[bytes, os.stat_result]:
    fd = os.open(name, _READ, dir_fd=directory.fd)
    with open(fd, "rb", buffering=0) as file:
        at = os.fstat(fd)
        if not stat.S_ISREG(at.st_mode):
            raise FileNotFoundError(name)
        return file.read(), at


def _write(made: Path, data: bytes, like: os.stat_result, written_ns: int) -> None:
    """Beside the layer: what a kill leaves there goes with it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    fd = os.open(made, flags, 0o600)
    try:
        write_all(fd, data)
        os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, stat.S_IMODE(like.st_mode))
        os.utime(fd, ns=(written_ns, written_ns))
        fsync_fd(fd)
    finally:
        os.close(fd)
