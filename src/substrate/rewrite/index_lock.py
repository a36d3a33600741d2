"""``index.lock``, held as git holds it while a rewrite is under way."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from substrate.errors import LockedError
from substrate.rewrite.working_copy import WorkingCopy
from substrate.system.files import fsync_dir, write_all

#: The first bytes of a lock that is ours and not a new index yet.
_MARK = b"substrate rewrite "
_TEMPORARY = "index.substrate"
#: What a file system without hard links answers.
_NO_LINKS = frozenset(
    {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV}
)


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
            self._appear()
        except FileExistsError:
            raise LockedError(
                f"the index is locked: {self.path} exists",
                hint="another git is at work here; if none is, remove that file",
            ) from None
        finally:
            self._temporary.unlink(missing_ok=True)
        self._held = True

    def _appear(self) -> None:
        try:
            os.link(self._temporary, self.path)
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        # As exclusive, but for one moment it is empty. A kill right there leaves a lock that only
        # the user can judge; it is said as with any lock of git's.
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(fd, self._temporary.read_bytes())
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

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

    def exchange(self, content: bytes, vouch: Callable[[Path], None]) -> None:
        """Make `content` the index, durably. The lock is gone afterwards, as git has it.

        `vouch` gets the finished file just before it takes the index's place.
        """
        self._write_temporary(content, self._index.stat().st_mode & 0o777)
        vouch(self._temporary)
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
