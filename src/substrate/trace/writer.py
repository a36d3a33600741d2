"""Append spans to the trace file, from any number of processes at once.

One span is one line and one `write` to a descriptor opened for appending, so lines of several
processes never mix, with or without a lock. A process killed in the middle of a write leaves a
torn last line; the next writer starts a new line, and readers skip the torn one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from substrate.errors import LockedError, SubstrateError, WorkspaceError
from substrate.system import Environment, clock
from substrate.system.sync import FileLock

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]

#: A file this long is rotated: renamed to ``trace.jsonl.1``, ``.1`` to ``.2``, and so on.
ROTATE_BYTES = 64 * 1024 * 1024
#: How many files are kept besides the one written to.
KEPT_FILES = 8
#: How often a writer reopens the current file when other processes keep rotating it.
_TRIES = 10

Span = Mapping[str, object]

#: Called with every span that this process appends, before it is written, so that a record can be
#: passed on, for example from the daemon to its client. They must not raise.
watchers: list[Callable[[Span], None]] = []


class TraceWriter:
    """Appends to one trace file; cheap to create, keeps no file open."""

    def __init__(
        self,
        path: Path,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        kept_files: int = KEPT_FILES,
        home: Path | None = None,
    ) -> None:
        """`home` is Substrate's own directory, kept private; other directories keep their mode."""
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
                # Without the lock, a line that another process is writing would look torn.
                locked = lock_file(fd)
                if tries_left and not self._is_current(fd):
                    continue  # rotated while we waited: readers expect no new lines there
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
        """Make the trace readable by its owner only, even if created under a loose umask."""
        if os.name == "nt":
            return
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.fchmod(fd, 0o600)
        if self._home is None or self.path.parent != self._home:
            return
        above = os.stat(self._home)
        if above.st_uid != os.geteuid():
            # In a world-writable place another user could have planted this directory.
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
        """Whether the trace's path still refers to the open file."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _rotate(self, more: int) -> None:
        """Rename the full file while no writer holds its lock.

        So every line written under the lock is in the file before the rename, and a follower that
        has read a rotated file to its end has all of it. Only a writer that could not get the
        lock may still append to it: its line is then in ``.1``, and not lost.
        """
        lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        try:
            lock.acquire(0.0, "rotating the trace")
        except (LockedError, WorkspaceError):
            return  # another process rotates it, or none can: keep using the long file
        try:
            # Check again: if two writers both found the file full, the second would otherwise
            # rotate the fresh file and drop an old one.
            if self._is_full(more):
                self._put_aside()
        except OSError:
            pass  # a file that cannot be rotated keeps growing
        finally:
            lock.release()

    def _put_aside(self) -> None:
        fd = self._open()
        try:
            if lock_file(fd) is False:
                return  # a writer keeps the lock: the file keeps growing
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
    """One line of JSON without white space, ending with its only newline."""
    import json

    text = json.dumps(span, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate has no UTF-8 form, but its escape is valid JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def lock_file(fd: int) -> bool | None:
    """Lock the file against other writers; False after 0.25 s.

    The wait is short because a stopped writer must not block all others. None if locks are not
    available.
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
    """The length of a regular file; 0 for a device or a pipe, which has none."""
    found = os.fstat(fd)
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _is_torn(fd: int, size: int) -> bool:
    if size == 0:
        return False
    # Seeking is harmless: every write to this descriptor goes to the end.
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) != b"\n"


def _write_whole(fd: int, line: bytes, size: int | None) -> None:
    """Write the whole line or, if `size` is known because the file is locked, nothing."""
    written = 0
    try:
        while written < len(line):  # needs a second round only when the disk is full
            written += os.write(fd, line[written:])
    except OSError:
        if size is not None and written:
            os.ftruncate(fd, size)
        raise
