"""Dying of the signal that the command died of, as if the command had replaced this process.

Only then does a loop in the caller's shell stop at Ctrl-C: exit status 130 would tell the shell
that the program handled the key. The thin client imports this module: see
`client/offer_to_daemon.py`.
"""

from __future__ import annotations

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_PR_SET_DUMPABLE = 4


class _Command:
    """The signal that ended the command of this call; 0: none did."""

    __slots__ = ("killed_by",)

    def __init__(self) -> None:
        self.killed_by = 0


_command = _Command()


def command_ended(status: int, killed_by: int | None) -> None:
    """Record how the call's command ended; ``--timeout`` gives it another exit status."""
    _command.killed_by = killed_by if killed_by and status == 128 + killed_by else 0


def signal_for(status: int) -> int:
    """The signal to die of instead of exiting with `status`; 0: none."""
    number = _command.killed_by
    return number if number and status == 128 + number else 0


def die_of(number: int) -> None:
    """End this process by the signal; exit with 128 + its number if it cannot kill us (pid 1).

    Without a core file: it would hold Substrate's memory, not the command's.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform.startswith("linux"):  # a pipe in core_pattern ignores the limit
        from substrate.system.linux import syscalls

        try:
            syscalls.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        except OSError:
            pass
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (number,))
    posix.kill(posix.getpid(), number)
    posix._exit(128 + number)
