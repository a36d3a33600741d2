"""One writer at a time: a lock file that names its holder, and is free when the holder dies."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from substrate.errors import LockedError, WorkspaceError
from substrate.system.process import boot_id, pid_alive, pid_namespace, process_start_token

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]
try:
    import msvcrt
except ImportError:  # only on Windows
    msvcrt = None  # type: ignore[assignment,unused-ignore]

#: Far behind the holder's record: on Windows, other processes cannot read a locked range.
_LOCKED_BYTE = 1 << 30
_BUSY = frozenset({errno.EAGAIN, errno.EACCES, errno.EDEADLK, errno.EINTR})
_NO_LOCKS_HERE = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


class Holder(NamedTuple):
    """The process that holds (or last held) a lock, as recorded in the lock file."""

    pid: int
    boot: str
    start: str
    purpose: str
    #: The pid namespace of `pid`; empty in records of older versions.
    namespace: str = ""
    #: Idle work: the holder releases the lock on SIGTERM.
    is_idle: bool = False

    @property
    def is_in_sight(self) -> bool:
        """Whether it runs and its pid is valid here, not from another pid namespace."""
        return self.namespace == pid_namespace() and not self.is_gone()

    def is_gone(self) -> bool:
        """Certainly dead: from another boot, no such process, or the pid was reused."""
        if self.boot and boot_id() and self.boot != boot_id():
            return True
        if not pid_alive(self.pid):
            return True
        now = process_start_token(self.pid)
        return bool(self.start and now and self.start != now)


class FileLock:
    """A lock between processes, exclusive unless taken as shared; not re-entrant.

    With kernel locks (flock, Windows) a dead holder's lock is free at once, and the file stays.
    Where there are none (some network file systems), ``<path>.held`` exists while the lock is held;
    if its holder is dead or from another boot, the lock is taken over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._held_file: Path | None = None
        self._shared = False
        self._makes_file = True
        self._is_idle = False
        #: Known once the lock is held: the previous holder died without releasing it.
        self.predecessor_died = False

    @property
    def held(self) -> bool:
        return self._fd is not None or self._held_file is not None

    def acquire(
        self,
        timeout_s: float,
        purpose: str,
        *,
        shared: bool = False,
        makes_file: bool = True,
        is_idle: bool = False,
    ) -> None:
        """Take the lock, waiting up to `timeout_s`; `LockedError` names holder and purpose.

        Any number of processes may share it; the file names none of these. Where the system has
        only exclusive locks, sharers wait for each other. Without `makes_file`, a missing lock file
        is a `WorkspaceError`. `is_idle`: any other caller may end this work by a SIGTERM.
        """
        if self.held:
            raise RuntimeError("this lock is held already")
        self.predecessor_died = False
        self._makes_file = makes_file
        self._is_idle = is_idle
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while not self._try(purpose, shared):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._locked_error()
            if not is_idle:
                self._ask_to_give_way()
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def release(self, *, is_clean: bool = True) -> None:
        """Release the lock; harmless when not held.

        Unless `is_clean`, the next holder cleans up, as after a kill (`predecessor_died`).
        """
        fd, self._fd = self._fd, None
        if fd is not None:
            if not self._shared and is_clean:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
            _kernel_unlock(fd)
            os.close(fd)
        held_file, self._held_file = self._held_file, None
        if held_file is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(held_file)

    def holder(self) -> Holder | None:
        """The holder that the lock file names; None if it names none."""
        return _read_holder(self.path) or _read_holder(self._exclusive_path())

    def is_free(self) -> bool:
        """Whether no process holds it. Changes nothing: the record of a dead holder stays."""
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return not self._exclusive_path().exists()
        try:
            taken = _kernel_lock(fd, shared=True)
            if taken:
                _kernel_unlock(fd)
        finally:
            os.close(fd)
        if taken is None:
            holder = _read_holder(self._exclusive_path())
            return holder is None or holder.is_gone()
        return taken

    def __enter__(self) -> FileLock:
        if not self.held:
            self.acquire(0.0, "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _try(self, purpose: str, shared: bool) -> bool:
        fd = self._open(shared)
        if fd is None:
            return True
        try:
            taken = _kernel_lock(fd, shared)
        except BaseException:
            os.close(fd)
            raise
        if taken is None:
            os.close(fd)
            return self._makes_file and self._try_exclusive_file(purpose)
        # Another process may have removed the file between our open and our lock: then we hold
        # nothing.
        if not taken or not _same_file(fd, self.path):
            os.close(fd)
            return False
        try:
            if not shared:
                self.predecessor_died = os.fstat(fd).st_size > 0  # `release` empties the file
                if self.predecessor_died:
                    os.ftruncate(fd, 0)
                os.write(fd, _record(purpose, self._is_idle))
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._shared = fd, shared
        return True

    def _open(self, shared: bool) -> int | None:
        """None: there is no lock file and none can be made, so nothing can write here either."""
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        makes = os.O_CREAT if self._makes_file else 0
        try:
            return os.open(self.path, flags | os.O_RDWR | makes, 0o600)
        except OSError as error:
            if shared and error.errno in _READ_ONLY:
                return self._open_to_look(flags)
            raise WorkspaceError(
                f"cannot open the lock file {self.path}: {error.strerror}",
                hint="check that the directory is there and that you may write to it",
            ) from error

    def _open_to_look(self, flags: int) -> int | None:
        """Read-only is enough for a shared lock, so a read-only copy of a store can be read."""
        with contextlib.suppress(OSError):
            return os.open(self.path, flags | os.O_RDONLY)
        self._fd, self._shared = os.open(os.devnull, os.O_RDONLY), True
        return None

    def _exclusive_path(self) -> Path:
        return self.path.with_name(self.path.name + ".held")

    def _try_exclusive_file(self, purpose: str) -> bool:
        held = self._exclusive_path()
        if _create_record(held, purpose, self._is_idle):
            self._held_file = held
            return True
        holder = _read_holder(held)
        if holder is not None and holder.is_gone() and _take_away(held, holder):
            self.predecessor_died = True
            return self._try_exclusive_file(purpose)
        return False

    def _ask_to_give_way(self) -> None:
        """Ask idle work to end, because this call has something to do."""
        holder = self.holder()
        if holder is None or not holder.is_idle or not holder.is_in_sight:
            return
        import signal

        with contextlib.suppress(OSError):
            os.kill(holder.pid, signal.SIGTERM)

    def _locked_error(self) -> LockedError:
        holder = self.holder()
        if holder is None:
            who = "another process"
        else:
            who = f"process {holder.pid}" + (f" ({holder.purpose})" if holder.purpose else "")
        return LockedError(
            f"{self.path.name} is held by {who}",
            hint="wait until it has finished, then try again",
        )


def _kernel_lock(fd: int, shared: bool) -> bool | None:
    """True: ours. False: another process's. None: no kernel locks here."""
    try:
        if fcntl is not None:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        elif msvcrt is not None:
            os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            return None
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in _NO_LOCKS_HERE:
            return None
        raise
    return True


def _kernel_unlock(fd: int) -> None:
    # Unlock explicitly, not by close(): a forked child may still share the descriptor.
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    elif msvcrt is not None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _record(purpose: str, is_idle: bool) -> bytes:
    pid = os.getpid()
    fields = {"pid": pid, "boot": boot_id(), "start": process_start_token(pid), "purpose": purpose}
    fields["namespace"] = pid_namespace()
    if is_idle:
        fields["idle"] = True
    return json.dumps(fields).encode() + b"\n"


def _create_record(path: Path, purpose: str, is_idle: bool) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        os.write(fd, _record(purpose, is_idle))
    finally:
        os.close(fd)
    return True


def _read_holder(path: Path) -> Holder | None:
    try:
        with open(path, "rb") as file:
            fields = json.loads(file.read(4096))
        return Holder(
            int(fields["pid"]),
            str(fields["boot"]),
            str(fields["start"]),
            str(fields["purpose"]),
            str(fields.get("namespace", "")),
            fields.get("idle") is True,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _take_away(held: Path, dead: Holder) -> bool:
    """Remove a dead holder's file; put it back if it turns out to be a newer, living holder's."""
    aside = held.with_name(f"{held.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        os.rename(held, aside)
    except FileNotFoundError:
        return True
    if _read_holder(aside) != dead:
        with contextlib.suppress(OSError):
            os.link(aside, held)
        os.unlink(aside)
        return False
    os.unlink(aside)
    return True
