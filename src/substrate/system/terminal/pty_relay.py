"""A new terminal for a command, relayed to our own streams (POSIX): ``run --pty``.

our stdin ──▶ ┌──────────┐ ──▶ stdin
              │ terminal │      command, in its own session
our stdout ◀─ └──────────┘ ◀── stdout, stderr
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from substrate.system.process import die_of_signal, fork_on_terminal
from substrate.system.process import fd_channel as channels
from substrate.system.terminal import pty_capture, standard_streams

_CHUNK_BYTES = 65536


def run_on_terminal(work: Callable[[], int]) -> int:
    """Do `work` in a child whose stdin, stdout and stderr are a new terminal; returns its status.

    If our own stdin is a terminal, keys are passed on unchanged, and the new terminal follows its
    size. The child can capture the output with `pty_capture.current`.
    """
    marks = pty_capture.Marks.new()
    ours, theirs = channels.pair()

    def on_terminal() -> None:
        status = 125
        try:
            standard_streams.absent.clear()
            ours.close()
            pty_capture.current = pty_capture.Tap(marks, theirs)
            status = work()
            sys.stdout.flush()
            sys.stderr.flush()
            if die_of_signal.signal_for(status):
                die_of_signal.die_of(die_of_signal.signal_for(status))
        finally:
            os._exit(status)

    pid, master = fork_on_terminal(on_terminal)
    theirs.close()
    with _OurTerminal(master):
        _relay(master, pty_capture.Relayed(marks, ours))
    ours.close()
    _, status = os.waitpid(pid, 0)
    os.close(master)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    die_of_signal.command_ended(128 - code, -code)
    return 128 - code


class _OurTerminal:
    """While active: our terminal in raw mode, and the new terminal of the same size."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._is_terminal = os.isatty(0)
        self._old: list[object] = []
        self._old_handler: object = signal.SIG_DFL

    def __enter__(self) -> None:
        if not self._is_terminal:
            return
        import termios
        import tty

        self._old = termios.tcgetattr(0)
        self._follow_size()
        self._old_handler = signal.signal(signal.SIGWINCH, self._follow_size)
        tty.setraw(0)

    def __exit__(self, *_: object) -> None:
        if not self._is_terminal:
            return
        import termios

        signal.signal(signal.SIGWINCH, self._old_handler)  # type: ignore[arg-type]
        termios.tcsetattr(0, termios.TCSADRAIN, self._old)  # type: ignore[arg-type]

    def _follow_size(self, *_: object) -> None:
        import fcntl
        import termios

        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)


def _relay(master: int, tap: pty_capture.Relayed) -> None:
    sources = [master, 0]
    while master in sources:
        ready = select.select(sources, [], [])[0]
        if master in ready:
            try:
                data = os.read(master, _CHUNK_BYTES)
            except OSError:  # EIO: no process has the other side open any more
                data = b""
            if not data:
                _write_all(1, tap.rest())
                return
            _write_all(1, tap.feed(data))
        if 0 in ready:
            data = os.read(0, _CHUNK_BYTES)
            if data:
                _write_all(master, data)
            else:
                # End of our stdin: send Ctrl-D, which ends the command's stdin on a terminal.
                _write_all(master, b"\x04")
                sources.remove(0)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
