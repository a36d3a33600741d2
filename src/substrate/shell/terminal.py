"""Which process group owns the terminal while a shell uses it in our place (POSIX)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

from substrate.system.process import process_tree
from substrate.system.terminal import terminal_group

#: Keys typed at the terminal are for the shell and its jobs, not for us.
_NOT_OURS = ("SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGTERM")


#: One per ``bg`` by the calling shell. Where the signal does not stop us, this ends the loop.
_MOST_STOPS = 1000


class LeftToTheShell:
    """Ignore the terminal's signals; take the terminal back at the end."""

    def __init__(self, shell: int) -> None:
        self._shell = shell

    def __enter__(self) -> None:
        self._before = {name: _set(name, signal.SIG_IGN) for name in _NOT_OURS}
        # The session leader gets SIGHUP or sends it: the shell ends then, and we end after it.
        self._before["SIGHUP"] = _set("SIGHUP", self._pass_on)

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        with suppress(OSError):
            os.kill(self._shell, signum)
            os.kill(self._shell, signal.SIGCONT)  # it may be stopped

    def __exit__(self, *_: object) -> None:
        take_back()
        for name, handler in self._before.items():
            _set(name, handler)


def take_back() -> None:
    """Take the terminal back from a shell that was killed, or cannot see our process group."""
    terminal_group.take_back(0)


def stop_with(shell: int) -> None:
    """The shell has stopped itself (``suspend``): stop too, and continue together.

    If no other process could wake us, the signal does nothing and the shell continues at once.
    If we are continued in the background (``bg``, ``kill %1``), we stop again: the terminal belongs
    to the calling shell.
    """
    take_back()
    for _ in range(_MOST_STOPS):
        _set("SIGTSTP", signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        _set("SIGTSTP", signal.SIG_IGN)
        if terminal_group.is_ours(0):
            with suppress(OSError):
                os.tcsetpgrp(0, os.getpgid(shell))
            break
        if not _has_terminal() or not process_tree.is_stopped(shell):
            break
    with suppress(OSError):
        os.kill(shell, signal.SIGCONT)


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) > 0
    except OSError:
        return False


def _set(name: str, handler: signal._HANDLER) -> signal._HANDLER:
    return signal.signal(getattr(signal, name), handler)
