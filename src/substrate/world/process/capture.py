"""What a command prints: passed on at once and unchanged, hashed whole, kept up to a cap (POSIX).

    command ──pipe──▶ a thread of ours ──▶ our stdout
                            └──▶ hash, file

A stream that is a terminal or ``/dev/null`` is given to the command itself and not captured:
programs check what they write to, and behave differently on a pipe. But if we made the terminal
(``--pty``), its relay records what goes through. Where stdout and stderr are the same (``2>&1``)
they share one pipe, so that their lines stay in order; it is captured as stdout.
"""

from __future__ import annotations

import os
import select
import signal
import stat
from _thread import allocate_lock
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from substrate.system.files import files
from substrate.system.process import fork_child
from substrate.system.process import rlimit_check as room
from substrate.system.terminal import pty_capture
from substrate.world.interface import Capture, Captured

if TYPE_CHECKING:
    from hashlib import _Hash

_CHUNK_BYTES = 1024 * 1024
#: The size to use when there is no memory for more.
_SMALL_CHUNK_BYTES = 4096
#: What Linux lets every user have; a small pipe would cost a context switch for each 64 KiB.
_PIPE_BYTES = 1024 * 1024


class Streams(NamedTuple):
    """What the command gets as stdout and stderr; `None` means our own."""

    stdout: int | None
    stderr: int | None


class Capturing:
    """The capture of one command: `start` before it runs, `finish` once it has ended."""

    def __init__(self, wanted: Capture | None, stdout: int | None, stderr: int | None) -> None:
        """Without `wanted` nothing is captured and the streams pass through as they are."""
        out, err = 1 if stdout is None else stdout, 2 if stderr is None else stderr
        self._out = self._err = None
        self._tap: pty_capture.Tap | None = None
        self._wanted = wanted
        self._terminal = out
        self.streams = Streams(stdout, stderr)
        if wanted is None or os.name != "posix":
            return
        if pty_capture.current is not None and os.isatty(out):
            self._tap = pty_capture.current
            self._tap.begin(os.fsencode(wanted.directory / "stdout"), wanted.cap_bytes, out)
        if _is_captured(out):
            self._out = _Pump(out, wanted.directory / "stdout", wanted.cap_bytes)
            self.streams = Streams(self._out.write_end, stderr)
            if _same(out, err):
                self.streams = Streams(self._out.write_end, self._out.write_end)
                return
        if _is_captured(err):
            self._err = _Pump(err, wanted.directory / "stderr", wanted.cap_bytes)
            self.streams = self.streams._replace(stderr=self._err.write_end)

    def start(self) -> None:
        """Begin to pass on. Not before the last fork: a thread does not survive one.

        `RefusedError` if there may be no more threads: then nothing is passed on, and the caller
        must only call `finish`.
        """
        for pump in (self._out, self._err):
            if pump is not None:
                pump.start()

    def finish(self) -> tuple[Captured | None, Captured | None]:
        """What stdout and stderr were. Processes that the command left keep their output."""
        for pump in (self._out, self._err):
            if pump is not None:
                pump.finish()
        unfinished = [p for p in (self._out, self._err) if p is not None and not p.at_end]
        if unfinished:
            _leave_relay(unfinished)
        for pump in unfinished:
            os.close(pump.read_end)
        return (
            self._noted() if self._out is None else self._out.captured(),
            None if self._err is None else self._err.captured(),
        )

    def _noted(self) -> Captured | None:
        """What went over a terminal of ours, where stdout and stderr are the same."""
        if self._tap is None or self._wanted is None:
            return None
        noted = self._tap.end(self._terminal)
        if noted is None:
            return None
        kept = self._wanted.directory / "stdout" if noted.is_kept else None
        cut = noted.size_bytes > self._wanted.cap_bytes or (noted.size_bytes > 0 and kept is None)
        return Captured(noted.sha256, noted.size_bytes, kept, cut)


class _Pump:
    """One stream."""

    def __init__(self, target: int, path: Path, cap_bytes: int) -> None:
        import hashlib

        self.target = target
        self.read_end, self.write_end = os.pipe()
        _widen(self.read_end)
        self.at_end = False
        self._path = path
        self._cap_bytes = cap_bytes
        self._file: int | None = None
        self._hash: _Hash = hashlib.sha256()
        self._size_bytes = 0
        self._wake_reader, self._wake_writer = os.pipe()
        self._started = False
        #: Held while the thread is running.
        self._done = allocate_lock()
        self._failure: OSError | None = None

    def start(self) -> None:
        self._done.acquire()
        try:
            room.start_thread(self._run)
        except BaseException:
            self._done.release()
            raise
        self._started = True

    def finish(self) -> None:
        """Read what is still in the pipe, and stop."""
        os.close(self.write_end)
        if not self._started:  # then the command was not started either
            os.close(self.read_end)
            self.at_end = True
        os.close(self._wake_writer)
        with self._done:
            pass
        os.close(self._wake_reader)
        if self._file is not None:
            os.close(self._file)

    def captured(self) -> Captured:
        kept = self._file is not None and self._failure is None
        return Captured(
            self._hash.hexdigest(),
            self._size_bytes,
            self._path if kept else None,
            self._size_bytes > self._cap_bytes or (self._size_bytes > 0 and not kept),
        )

    def _run(self) -> None:
        # Signals are for the thread that waits for the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pass_on()
        except OSError:
            # Our output has no reader any more: the command must get the same error as without us.
            self.at_end = True
            os.close(self.read_end)
        finally:
            self._done.release()

    def _pass_on(self) -> None:
        waiting = select.poll()
        waiting.register(self.read_end, select.POLLIN)
        waiting.register(self._wake_reader, select.POLLIN)
        while True:
            ready = [fd for fd, _ in waiting.poll()]
            if self.read_end in ready:
                data = self._read()
                if not data:
                    self.at_end = True
                    os.close(self.read_end)
                    return
                _write_all(self.target, data)
                self._take(data)
            elif ready:
                return  # the command has ended, and its last bytes have been passed on

    def _read(self) -> bytes:
        try:
            return os.read(self.read_end, _CHUNK_BYTES)
        except MemoryError:  # the command waits for us: read in small pieces if necessary
            return os.read(self.read_end, _SMALL_CHUNK_BYTES)

    def _take(self, data: bytes) -> None:
        room = self._cap_bytes - self._size_bytes
        self._hash.update(data)
        self._size_bytes += len(data)
        if room <= 0 or self._failure is not None:
            return
        try:
            if self._file is None:
                os.makedirs(self._path.parent, 0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
            files.write_all(self._file, data[:room])
        except OSError as error:
            # The user's output matters more than our copy of it: the record says it is not kept.
            self._failure = error


def _leave_relay(pumps: list[_Pump]) -> None:
    """A process that passes on what leftover processes print, after we have ended."""
    fork_child(lambda: _relay({pump.read_end: pump.target for pump in pumps}))


def _relay(targets: dict[int, int]) -> NoReturn:
    needed = sorted({*targets, *targets.values()})
    for low, high in zip((-1, *needed), (*needed, 1 << 20), strict=True):
        os.closerange(low + 1, high)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while targets:
        for fd in select.select(list(targets), [], [])[0]:
            data = os.read(fd, _CHUNK_BYTES)
            if data:
                with suppress(OSError):
                    _write_all(targets[fd], data)
                    continue
            os.close(fd)
            del targets[fd]
    os._exit(0)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # another process made our output non-blocking
            waiting = select.poll()
            waiting.register(fd, select.POLLOUT)
            waiting.poll()


def _is_captured(fd: int) -> bool:
    try:
        found = os.fstat(fd)
    except OSError:
        return False  # closed: then it is closed for the command, too
    return not stat.S_ISCHR(found.st_mode) and not stat.S_ISDIR(found.st_mode)


def _same(first: int, second: int) -> bool:
    try:
        return os.path.samestat(os.fstat(first), os.fstat(second))
    except OSError:
        return False


def _widen(fd: int) -> None:
    """Enlarge the pipe if the system allows it; it also works without."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
