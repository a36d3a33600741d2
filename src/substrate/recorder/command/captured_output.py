"""What commands printed: kept for replay, privately, until it is old or too much.

`$SUBSTRATE_HOME/outputs/<span>/stdout` and ``stderr``, each up to the capture's cap. The span holds
the hash and the size of all of it, so that what is gone or cut can be told from another output.
"""

from __future__ import annotations

import os
from pathlib import Path

from substrate.system import clock, files
from substrate.world.protocol import Capture

DIRECTORY = "outputs"
#: All of it together; the oldest goes first.
MOST_BYTES = 512 << 20
OLDEST_NS = 30 * 24 * 3600 * 10**9
#: How often it is looked through.
_EVERY_NS = 3600 * 10**9
_MARK = ".looked"


def capture_for(home: Path, span_id: str) -> Capture:
    """Where a command's streams go; now and then what is old goes away on the way."""
    directory = home / DIRECTORY
    _prune_if_due(directory)
    return Capture(directory / span_id)


def _prune_if_due(directory: Path) -> None:
    """One `stat` a command; never an error of the command's."""
    mark = directory / _MARK
    try:
        try:
            looked_ns = os.stat(mark).st_mtime_ns
        except FileNotFoundError:
            looked_ns = 0
        if abs(clock.now_ns() - looked_ns) < _EVERY_NS:
            return
        os.makedirs(directory, 0o700, exist_ok=True)
        files.write_atomic(mark, b"", durable=False)
        prune(directory)
    except OSError:
        pass


def prune(directory: Path, most_bytes: int = MOST_BYTES, oldest_ns: int = OLDEST_NS) -> int:
    """Remove outputs that are older than `oldest_ns`, and the oldest above `most_bytes`.

    How many commands' outputs went. What a command writes just now is the newest: it stays.
    """
    with os.scandir(directory) as entries:
        found = sorted(
            (
                (entry.stat(follow_symlinks=False).st_mtime_ns, entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            ),
            reverse=True,
        )
    now, total, gone = clock.now_ns(), 0, 0
    for changed_ns, path in found:
        total += _size(path)
        if now - changed_ns > oldest_ns or total > most_bytes:
            files.remove_tree(Path(path))
            gone += 1
    return gone


def _size(path: str) -> int:
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass
    return total
