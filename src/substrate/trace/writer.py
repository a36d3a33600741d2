"""Appending spans to the trace file, from any number of processes at once.

One span is one line and one `write` to a descriptor opened for appending, so lines of several
processes never mix, with or without a lock. A process killed in the middle of a write leaves a
torn last line; whoever comes next starts a fresh one, and readers skip what is torn.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from substrate.errors import LockedError, SubstrateError, WorkspaceError
from substrate.system import clock
from substrate.system.environment import Environment
from substrate.system.locks import FileLock

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]

#: A file this long is put aside as ``trace.jsonl.1``, ``.1`` as ``.2``, and so on.
ROTATE_BYTES = 64 * 1024 * 1024
#: How many files are kept besides the one written to.
KEPT_FILES = 8
#: How often a writer looks for the current file, when others put it aside under its hands.
_TRIES = 10

Span = Mapping[str, object]

#: Told of every span that this process appends, before it is written: for whoever must hand a
#: record on, such as the agent to its client. They must not raise.
watchers: list[Callable[[Span], None]] = []


class TraceWriter:
    """Appends to one trace file; cheap to make, holds nothing open."""

    def __init__(
        self,
        path: Path,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        kept_files: int = KEPT_FILES,
        home: Path | None = None,
    ) -> None:
        """`home` is a directory of ours, kept from others' eyes; any other is left as it is."""
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._kept_files = kept_files
        self._home = home

    @classmethod
    def of(cls, env: Environment) -> TraceWriter:
        return cls(env.trace_path, home=env.substrate_home)

    def append(self, span: Span) -> None:
        """Write one span. `WorkspaceError` if the file cannot be written."""
        line = encode(span)
        for watcher in watchers:
            watcher(span)
        try:
            self._append_line(line)
        except OSError as error:
            raise self._not_written(error) from error

    def _append_line(self, line: bytes) -> None:
        for tries_left in reversed(range(_TRIES)):
            if self._is_full(len(line)):
                self._rotate(len(line))
            fd = self._open()
            try:
                # Without the lock a line that somebody is just writing would look like a torn one.
                locked = _lock(fd)
                if tries_left and not self._is_current(fd):
                    continue  # put aside while we waited: nobody looks for new lines there
                size = _size(fd)
                whole = b"\n" + line if _is_torn(fd, size) else line
                _write_whole(fd, whole, size if locked else None)
                return
            finally:
                os.close(fd)  # and with it the lock

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        try:
            fd = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            self._make_directory()
            fd = os.open(self.path, flags, 0o600)
        try:
            self._keep_private(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _make_directory(self) -> None:
        # makedirs gives its mode to the last directory only.
        missing = [self.path.parent]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)

    def _keep_private(self, fd: int) -> None:
        """Whoever made it under a loose umask: the trace is for its owner's eyes."""
        if os.name == "nt":
            return
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.fchmod(fd, 0o600)
        if self._home is None or self.path.parent != self._home:
            return
        above = os.stat(self._home)
        if above.st_uid != os.geteuid():
            # A directory in a place all may write to could have been put there for us.
            if os.geteuid() != 0:
                raise PermissionError(f"{self._home} belongs to another user")
        elif above.st_mode & 0o077:
            os.chmod(self._home, 0o700)

    def _is_full(self, more: int) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and 0 < found.st_size > self._rotate_bytes - more

    def _is_current(self, fd: int) -> bool:
        """Whether the trace's name still means the open file."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _rotate(self, more: int) -> None:
        """Put the full file aside, while no writer holds it.

        So whatever is written under the lock is in a file before that is put aside, and a
        follower that has read such a file to its end has it all. Only a writer that could not
        have the lock may still append to it: its line is in ``.1`` then, and not lost.
        """
        lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        try:
            lock.acquire(0.0, "rotating the trace")
        except (LockedError, WorkspaceError):
            return  # somebody else is at it, or nobody can: go on with the long file
        try:
            # Asked again, because of two writers that both found the file full the second would
            # otherwise put the fresh one aside, and an old one out.
            if self._is_full(more):
                self._put_aside()
        except OSError:
            pass  # a file that cannot be put aside grows on
        finally:
            lock.release()

    def _put_aside(self) -> None:
        fd = self._open()
        try:
            if _lock(fd) is False:
                return  # a writer holds it and does not end: the file grows on
            for number in range(self._kept_files, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(self._aside(number - 1), self._aside(number))
            os.replace(self.path, self._aside(1))
        finally:
            os.close(fd)

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _not_written(self, error: OSError) -> SubstrateError:
        return WorkspaceError(
            f"the trace {self.path} cannot be written: {error.strerror or error}",
            hint="name another place with SUBSTRATE_TRACE or SUBSTRATE_HOME",
        )


def encode(span: Span) -> bytes:
    """One line: no white space, ends with a newline, holds no other."""
    import json

    text = json.dumps(span, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate has no UTF-8 form, but its escape is JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _lock(fd: int) -> bool | None:
    """Keep other writers out, if that can be had soon: one that is stopped must not stop all.

    None where there are no locks to be had.
    """
    if fcntl is None:
        return None
    for pause_ms in (0, 1, 2, 4, 8, 16, 32, 64, 128):
        if pause_ms:
            clock.sleep(pause_ms / 1_000)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:  # no locks on this file system
            return None
        return True
    return False


def _size(fd: int) -> int:
    """How long a regular file is; 0 for a device or a pipe, which has no end to look at."""
    found = os.fstat(fd)
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _is_torn(fd: int, size: int) -> bool:
    if size == 0:
        return False
    # Seeking does no harm: every write to this descriptor goes to the end.
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) != b"\n"


def _write_whole(fd: int, line: bytes, size: int | None) -> None:
    """Write it all, or (if nobody else can write, so that `size` is known) nothing."""
    written = 0
    try:
        while written < len(line):  # a second round only finds that the disk is full
            written += os.write(fd, line[written:])
    except OSError:
        if size is not None and written:
            os.ftruncate(fd, size)
        raise
