"""What of a world has been brought in already, while processes go on in it.

When they have ended, only what they changed since is theirs to bring in: what the layer held
before is not to be done once more. Others have worked there meanwhile, and a file that the command
had removed from an excluded directory may stand there again.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from substrate.model.paths import RelPath, is_within
from substrate.system import files
from substrate.system.files import read_bytes_or_none
from substrate.workspace.layer import LayerDiff, LayerEntry
from substrate.world.protocol import Layer

_NAME = "seen.json"
_GONE = [0]

#: By path. Of a directory what it is, not what lies in it.
Stamps = dict[str, list[int]]


def look(layer: Layer) -> Stamps:
    """What lies in the layer now; taken before it is read."""
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
            continue  # going, or shut to us: it is then looked at as new
    return found


def still_there(layer: Layer, stamps: Stamps) -> Stamps:
    """Those that look as before; taken after the layer was read: the others may not have been."""
    now = look(layer)
    return {path: stamp for path, stamp in stamps.items() if now.get(path) == stamp}


def remember(layer: Layer, stamps: Stamps) -> None:
    files.write_atomic(_file(layer), json.dumps(stamps).encode("ascii"), durable=False)


def only_new(layer: Layer, diff: LayerDiff) -> LayerDiff:
    """`diff` without what `remember` was told of; all of it if nothing was."""
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
    # What arrives whole is needed for what is new in it.
    return not one.is_whole or not any(is_within(RelPath(path), one.path) for path in fresh)


def _stamp(at: os.stat_result) -> list[int]:
    if stat.S_ISCHR(at.st_mode):
        return _GONE  # a whiteout; many share one inode
    if stat.S_ISDIR(at.st_mode):
        return [at.st_ino, at.st_mode]
    return [at.st_ino, at.st_mode, at.st_size, at.st_ctime_ns]


def _file(layer: Layer) -> Path:
    return layer.directory / _NAME
