"""A terminal of its own for a command, relayed to wherever we are (POSIX): ``run --pty``.

our stdin ──▶ ┌──────────┐ ──▶ stdin
              │ terminal │      command, in a session of its own
our stdout ◀─ └──────────┘ ◀── stdout, stderr
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from substrate.system import channel as channels
from substrate.system import streams, terminal_tap

_CHUNK_BYTES = 65536


def run_on_terminal(work: Callable[[], int]) -> int:
    """Do `work` in a child whose stdin, stdout and stderr are a new terminal; its status.

    If our own stdin is a terminal it passes keys on as they are, and its size follows. What is
    printed can be noted by `terminal_tap.current`, in the child.
    """
    import pty

    marks = terminal_tap.Marks.new()
    ours, theirs = channels.pair()
    pid, master = pty.fork()
    if pid == 0:
        status = 125
        try:
            streams.absent = ()
            ours.close()
            terminal_tap.current = terminal_tap.Tap(marks, theirs)
            status = work()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    theirs.close()
    with _OurTerminal(master):
        _relay(master, terminal_tap.Relayed(marks, ours))
    ours.close()
    _, status = os.waitpid(pid, 0)
    os.close(master)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class _OurTerminal:
    """Ours in raw mode meanwhile, and the other of the same size."""

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


def _relay(master: int, tap: terminal_tap.Relayed) -> None:
    sources = [master, 0]
    while master in sources:
        ready = select.select(sources, [], [])[0]
        if master in ready:
            try:
                data = os.read(master, _CHUNK_BYTES)
            except OSError:  # EIO: nobody has the other side open any more
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
                # The end of our stdin is the end of its: what a terminal says with Ctrl-D.
                _write_all(master, b"\x04")
                sources.remove(0)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
