"""Merge an index that both sides changed, in the layer before it arrives.

Several commands may stage something at the same time, or the user may stage while a command does.
If they staged different paths, there is no conflict.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from substrate.objects.index import put_together, write_like
from substrate.recorder.user_git.refreshed_index import INDEX
from substrate.workspace.apply import LayerEntry
from substrate.workspace.paths import Directory, Stamp, Walker, stamp

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Merged(NamedTuple):
    #: The merged index in the layer.
    entry: LayerEntry
    #: The stamp of the real index that it was merged with.
    stood: Stamp


def merge_into_layer(
    root: Path, upper: Path, entry: LayerEntry, base: bytes | None
) -> Merged | None:
    """None if the merge is not possible; then nothing was changed.

    `base`: the index when the world started. Nothing may run in the world any more.
    """
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
            # The older of the two: git compares file times with it to find racy entries.
            written_ns = min(stands.st_mtime_ns, lies.st_mtime_ns)
            made = upper.parent / "merged-index"
            write_like(made, together, lies, (written_ns, written_ns))
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
