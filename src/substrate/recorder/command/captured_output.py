"""What commands printed: kept privately for replay, until it is too old or too large.

`$SUBSTRATE_HOME/outputs/<span>/stdout` and ``stderr``, each up to the capture's cap. The span has
the hash and the size of the full output: a replay can compare it even if the file is gone or cut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from substrate.system import clock
from substrate.system.files import files
from substrate.system.sync import store_age
from substrate.world import Capture

DIRECTORY = "outputs"
#: Limit for all outputs together; the oldest is removed first.
MOST_BYTES = 512 << 20
OLDEST_NS = 30 * 24 * 3600 * 10**9
#: How often old outputs are searched for.
_EVERY_NS = 3600 * 10**9
_MARK = ".looked"
#: The form of our own ids: a ledger that others wrote must not name other places.
_SPAN = re.compile(r"spn_[0-9a-z]{1,64}")


def capture_for(home: Path, span_id: str) -> Capture:
    """Where a command's streams are captured; now and then this removes old outputs."""
    directory = home / DIRECTORY
    _prune_if_due(directory)
    return Capture(directory / span_id)


def read(home: Path, span_id: str, stream: str) -> bytes | None:
    """What is kept of a command's ``stdout`` or ``stderr``; None: nothing was, or it is gone."""
    if not _SPAN.fullmatch(span_id):
        return None
    try:
        return (home / DIRECTORY / span_id / stream).read_bytes()
    except OSError:
        return None


def _prune_if_due(directory: Path) -> None:
    """One `stat` per command; an error here never fails the command."""
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
        prune(directory, age_ns=store_age.of_file(directory / store_age.FILE).age_of)
    except OSError:
        pass


def prune(
    directory: Path,
    most_bytes: int = MOST_BYTES,
    oldest_ns: int = OLDEST_NS,
    age_ns: Callable[[int], int] | None = None,
) -> int:
    """Remove outputs that are older than `oldest_ns`, and the oldest above `most_bytes`.

    Returns how many commands' outputs were removed. The output of a running command is the newest:
    it stays.
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
    total, gone = 0, 0
    now = clock.now_ns()
    for changed_ns, path in found:
        total += _size(path)
        age = age_ns(changed_ns) if age_ns is not None else now - changed_ns
        if age > oldest_ns or total > most_bytes:
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
