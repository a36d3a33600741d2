"""The user's index: locked as git locks it, rebuilt beside, exchanged by one rename."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from substrate.errors import LockedError
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.rewrite.replay import Stages
from substrate.rewrite.working_copy import WorkingCopy
from substrate.system.files import fsync_dir, write_all

#: The first bytes of a lock that is ours and not a new index yet.
_MARK = b"substrate rewrite "
#: More pathspecs than this cost more than a look at every file.
_FEW = 100
_TEMPORARY = "index.substrate"
_NOTHING = b"0 " + b"0" * 40


class IndexLock:
    """Holds ``index.lock``, so that no git changes the index while a rewrite is under way."""

    def __init__(self, copy: WorkingCopy) -> None:
        self._index = copy.index_file
        self.path = copy.git_dir / "index.lock"
        #: One name is enough: whoever writes it holds the working copy's own lock.
        self._temporary = copy.git_dir / _TEMPORARY
        self._held = False

    def acquire(self, operation_id: str) -> None:
        """`LockedError` if git is at it. The lock appears with our mark in it, never empty: a
        kill in between must not leave one that nobody dares to remove."""
        self._write_temporary(_MARK + operation_id.encode() + b"\n", 0o600)
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:
            raise LockedError(
                f"the index is locked: {self.path} exists",
                hint="another git is at work here; if none is, remove that file",
            ) from None
        finally:
            self._temporary.unlink(missing_ok=True)
        self._held = True

    def adopt(self) -> None:
        """After a crash: take over a lock that we left; `LockedError` if it is somebody else's."""
        if not os.path.lexists(self.path):
            self.acquire("recovery")
            return
        if not is_ours(self.path):
            raise LockedError(
                f"the index is locked by another git: {self.path}",
                hint="wait for it (or remove that file if none is running), then try again",
            )
        self._held = True

    def release(self) -> None:
        if self._held:
            self.path.unlink(missing_ok=True)
            self._held = False

    def exchange(self, content: bytes) -> None:
        """Make `content` the index, durably. The lock is gone afterwards, as git has it."""
        self._write_temporary(content, self._index.stat().st_mode & 0o777)
        os.replace(self._temporary, self._index)
        fsync_dir(self._index.parent)
        self.release()

    def _write_temporary(self, content: bytes, mode: int) -> None:
        fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(fd, content)
            os.fchmod(fd, mode)
            os.fsync(fd)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def left_behind(copy: WorkingCopy) -> list[Path]:
    """Our own files in the git directory, after a crash."""
    found = [copy.git_dir / _TEMPORARY] if (copy.git_dir / _TEMPORARY).exists() else []
    lock = copy.git_dir / "index.lock"
    return [*found, lock] if is_ours(lock) else found


def is_ours(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


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
