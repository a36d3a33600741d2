"""Appending spans to the trace file, from any number of processes at once.

One span is one line and one `write` to a descriptor opened for appending, so lines of several
processes never mix. A process killed in the middle of a write leaves a torn last line; whoever
comes next starts a fresh one, and readers skip what is torn.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from substrate.errors import LockedError, SubstrateError, WorkspaceError
from substrate.system.environment import Environment
from substrate.system.locks import FileLock

#: A file this long is put aside as ``trace.jsonl.1``, ``.1`` as ``.2``, and so on.
ROTATE_BYTES = 64 * 1024 * 1024
#: How many files are kept besides the one written to.
KEPT_FILES = 8

Span = Mapping[str, object]


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
        try:
            self._append_line(line)
        except OSError as error:
            raise self._not_written(error) from error

    def _append_line(self, line: bytes) -> None:
        if self._is_full(len(line)):
            self._rotate(len(line))
        fd = self._open()
        try:
            if _is_torn(fd):
                # If two processes see the tear at once there is an empty line between: harmless.
                line = b"\n" + line
            _write_whole(fd, line)
        finally:
            os.close(fd)

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

    def _rotate(self, more: int) -> None:
        """Put the full file aside.

        A writer that opened the file before it was put aside still appends to it: its line is
        in ``.1`` then, and not lost.
        """
        lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        try:
            lock.acquire(0.0, "rotating the trace")
        except (LockedError, WorkspaceError):
            return  # somebody else is at it, or nobody can: go on with the long file
        try:
            # Asked again, because two writers that both found the file full would otherwise put
            # aside the full one and then, over it, the fresh one.
            if self._is_full(more):
                for number in range(self._kept_files, 1, -1):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(self._aside(number - 1), self._aside(number))
                os.replace(self.path, self._aside(1))
        except OSError:
            pass  # a file that cannot be put aside grows on
        finally:
            lock.release()

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


def _is_torn(fd: int) -> bool:
    """Whether a regular file's last line lacks its end."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return False
    # Seeking does no harm: every write to this descriptor goes to the end.
    os.lseek(fd, found.st_size - 1, os.SEEK_SET)
    return os.read(fd, 1) != b"\n"


def _write_whole(fd: int, line: bytes) -> None:
    written = os.write(fd, line)
    while written < len(line):  # the disk is full, most likely: the next write says so
        written += os.write(fd, line[written:])
