"""The user's index: recognised, and rebuilt beside it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.rewrite.replay import Stages
from substrate.rewrite.working_copy import WorkingCopy

#: More pathspecs than this cost more than a look at every file.
_FEW = 100
_NOTHING = b"0 " + b"0" * 40


def fingerprint(index: Path) -> str:
    """What an index is recognised by: the checksum it ends with, or one of our own."""
    try:
        with index.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - 20))
            own = file.read()
            if any(own):
                return f"{size}-{own.hex()}"
            file.seek(0)  # written without one (index.skipHash)
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return ""


def build(
    copy: WorkingCopy, base: Path, wanted: Mapping[RelPath, Node | Stages], into: Path
) -> None:
    """`base` with these entries, written to `into`; the stat of all other entries is kept."""
    into.write_bytes(base.read_bytes())
    removed, added = [], []
    for path, entry in wanted.items():
        removed.append(_NOTHING + b"\t" + path + b"\0")
        if isinstance(entry, Stages):
            for stage, node in enumerate(entry, start=1):
                if node != ABSENT:
                    added.append(_line(path, node, stage))
        elif entry != ABSENT:
            added.append(_line(path, entry, 0))
    if removed:
        # Everything out first: a file may take the place of a directory.
        stdin = b"".join(removed + added)
        copy.git.run("update-index", "-z", "--index-info", input=stdin, index=into)


def _line(path: RelPath, node: Node, stage: int) -> bytes:
    if node.kind is Kind.SYMLINK:
        mode = b"120000"
    else:
        mode = b"100755" if node.mode & 0o100 else b"100644"
    return b"%s %s %d\t%s\0" % (mode, node.oid.hex().encode(), stage, path)


def refresh(copy: WorkingCopy, index: Path, paths: Iterable[RelPath] | None) -> None:
    """Let git note the stat of files that are what their entries say, so that status is quick.

    None: of all files.
    """
    asked = None if paths is None else list(paths)
    if asked is None or len(asked) > _FEW:
        copy.git.try_run("update-index", "-q", "--refresh", index=index)
    elif asked:
        stdin = b"".join(path + b"\0" for path in asked)
        args = ("add", "--refresh", "--pathspec-from-file=-", "--pathspec-file-nul")
        copy.git.try_run(*args, input=stdin, index=index)
