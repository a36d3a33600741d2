"""Which part of a world has already arrived while processes still run in it.

When they have ended, only what they changed since then arrives: what the layer held before must
not be applied again. Other processes may have worked in the tree in between, and a file that the
command had removed from an excluded directory may be there again.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from substrate.model import RelPath, is_within
from substrate.system.files import files, read_bytes_or_none
from substrate.workspace.apply import LayerDiff, LayerEntry
from substrate.world import Layer

_NAME = "seen.json"
_GONE = [0]

#: By path. For a directory: the directory itself, not its content.
Stamps = dict[str, list[int]]


def look(layer: Layer) -> Stamps:
    """The stamps of all paths in the layer; taken before the layer is read."""
    found: Stamps = {}
    top = os.fspath(layer.upper)
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(os.path.join(top, below)) as entries:
                for entry in entries:
                    path = os.path.join(below, entry.name)
                    at = entry.stat(follow_symlinks=False)
                    found[path] = _stamp(at)
                    if stat.S_ISDIR(at.st_mode):
                        pending.append(path)
        except OSError:
            continue  # being removed, or unreadable: it then counts as new
    return found


def still_there(layer: Layer, stamps: Stamps) -> Stamps:
    """The stamps that did not change while the layer was read; others may not have been read."""
    now = look(layer)
    return {path: stamp for path, stamp in stamps.items() if now.get(path) == stamp}


def remember(layer: Layer, stamps: Stamps) -> None:
    files.write_atomic(_file(layer), json.dumps(stamps).encode("ascii"), durable=False)


def only_new(layer: Layer, diff: LayerDiff) -> LayerDiff:
    """`diff` without the paths saved by `remember`; all of it if nothing was saved."""
    data = read_bytes_or_none(_file(layer))
    if data is None:
        return diff
    before: Stamps = json.loads(data)
    now = look(layer)
    known = {os.fsencode(path) for path, stamp in before.items() if now.get(path) == stamp}
    fresh = sorted(os.fsencode(path) for path in now if os.fsencode(path) not in known)
    return LayerDiff(
        tuple(one for one in diff.entries if not _is_known(one, known, fresh)),
        tuple(one for one in diff.left_out if one.path not in known),
        tuple(path for path in diff.emptied if path not in known),
    )


def _is_known(one: LayerEntry, known: set[bytes], fresh: list[bytes]) -> bool:
    if one.path not in known:
        return False
    # A directory that arrives as a whole is needed if something in it is new.
    return not one.is_whole or not any(is_within(RelPath(path), one.path) for path in fresh)


def _stamp(at: os.stat_result) -> list[int]:
    if stat.S_ISCHR(at.st_mode):
        return _GONE  # a whiteout; many share one inode
    if stat.S_ISDIR(at.st_mode):
        return [at.st_ino, at.st_mode]
    return [at.st_ino, at.st_mode, at.st_size, at.st_ctime_ns]


def _file(layer: Layer) -> Path:
    return layer.directory / _NAME
