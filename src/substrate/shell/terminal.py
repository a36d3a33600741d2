"""Whose the terminal is, while a shell has it in our place (POSIX)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

#: The terminal's keys are the shell's, and its jobs'.
_NOT_OURS = ("SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGTERM")


class LeftToTheShell:
    """Signals of the terminal are not for us; at the end it is ours again."""

    def __init__(self, shell: int) -> None:
        self._shell = shell

    def __enter__(self) -> None:
        self._before = {name: _set(name, signal.SIG_IGN) for name in _NOT_OURS}
        # Told to who leads the session, or by it: the shell ends then, and we after it.
        self._before["SIGHUP"] = _set("SIGHUP", self._pass_on)

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        with suppress(OSError):
            os.kill(self._shell, signum)

    def __exit__(self, *_: object) -> None:
        take_back()
        for name, handler in self._before.items():
            _set(name, handler)


def take_back() -> None:
    """A shell that was killed, or that cannot see our process group, did not give it back."""
    with suppress(OSError):
        os.tcsetpgrp(0, os.getpgrp())


def stop_with(shell: int) -> None:
    """The shell has stopped itself (``suspend``): so do we, and go on together.

    Where nobody could wake us the signal does nothing, and the shell goes on at once.
    """
    take_back()
    _set("SIGTSTP", signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    _set("SIGTSTP", signal.SIG_IGN)
    with suppress(OSError):
        os.tcsetpgrp(0, os.getpgid(shell))
    with suppress(OSError):
        os.kill(shell, signal.SIGCONT)


def _set(name: str, handler: signal._HANDLER) -> signal._HANDLER:
    return signal.signal(getattr(signal, name), handler)
