"""The state of the user's refs and index before a world's arrival replaces them.

History does not record their content. Without these stamps, an arrival that a crash interrupted
could not tell the state it was replacing from a commit that was made since.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from substrate.model import Kind, RelPath
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import Plan
from substrate.workspace.paths import Stamp, stamp_of

#: By path; None: there was none.
Stood = tuple[tuple[RelPath, Stamp | None], ...]

_GIT = b".git/"
_NAMES = frozenset({b".git/HEAD", b".git/index", b".git/packed-refs"})
_REFS = b".git/refs/"


def look(root: Path, plan: Plan) -> Stood:
    """Take the stamps, before the plan is carried out."""
    return tuple(
        (op.path, _stamp(root, op.path))
        for op in plan.ops
        if op.path.startswith(_GIT)
        and (op.path in _NAMES or op.path.startswith(_REFS))
        and Kind.DIRECTORY not in (op.expect.kind, op.become.kind)
    )


def by_others(root: Path, upper: Path, stood: Stood) -> frozenset[RelPath]:
    """After a crash: the paths to leave alone, because another process wrote one of them since.

    Then no path that has not arrived yet may arrive: refs and index belong together.
    """
    waiting = [one for one in stood if not _has_come(root, upper, *one)]
    if all(_stamp(root, path) in (before, None) for path, before in waiting):
        return frozenset()
    return frozenset(path for path, _ in waiting)


def _has_come(root: Path, upper: Path, path: RelPath, before: Stamp | None) -> bool:
    lies = _lstat(upper, path)
    if lies is None or (before is not None and lies.st_ino == before[0]):
        return True  # renamed out of the layer, or exchanged
    if not stat.S_ISREG(lies.st_mode):
        return False
    stands = _lstat(root, path)
    if stands is None or not stat.S_ISREG(stands.st_mode) or stands.st_size != lies.st_size:
        return False
    its = read_bytes_or_none(upper / os.fsdecode(path))  # copied, perhaps
    return its is not None and its == read_bytes_or_none(root / os.fsdecode(path))


def _stamp(root: Path, path: RelPath) -> Stamp | None:
    return stamp_of(root / os.fsdecode(path))


def _lstat(root: Path, path: RelPath) -> os.stat_result | None:
    try:
        return os.lstat(root / os.fsdecode(path))
    except OSError:
        return None
