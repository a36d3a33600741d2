"""Waiting for signals instead of being interrupted by them, on POSIX systems.

While a command runs, every signal worth passing on is blocked here and fetched: no handler can
interrupt anything, no signal is lost between fork and wait, and (where the system has sigtimedwait)
we learn the sender. That matters for Ctrl-C: the terminal sends it to the whole process group, so
the command already has it and must not get it twice; a ``kill -INT`` to us alone must be passed on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from substrate.system import clock

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal


def those_of(*names: str) -> frozenset[signal.Signals]:
    """The signals with these names that this system has: Windows lacks most."""
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


#: The terminal sends these to the whole group; if the terminal sent them, do not pass them on.
_FROM_TERMINAL = those_of("SIGINT", "SIGQUIT", "SIGHUP")
_FOR_ONE = those_of("SIGUSR1", "SIGUSR2")
PASSED_ON = _FROM_TERMINAL | _FOR_ONE | {signal.SIGTERM}
WAITED_FOR = PASSED_ON | those_of("SIGCHLD")
#: Python ignores these for itself, so the caller's own setting is not known.
PYTHONS_OWN = tuple(sorted(those_of("SIGPIPE", "SIGXFSZ")))
#: Above 31, two signals belong to libc, and `posix_spawn` leaves them ignored.
ORDINARY = tuple(number for number in range(1, 32) if number not in PYTHONS_OWN)
#: SIGCHLD is not lost, but a thread that does not block it might take it: check now and then.
_TICK_S = 1.0
#: Longest pause between two polls, on systems that cannot wait for a signal with a timeout.
_LONGEST_PAUSE_S = 0.02


class Caller:
    """What this process knows about its caller, and about the command that it runs for it."""

    __slots__ = ("has_command", "ignored", "mask", "sends_to_all")

    def __init__(self) -> None:
        #: The signals it blocks, if the daemon runs a command for it; None: those we block.
        self.mask: tuple[int, ...] | None = None
        #: The same for the signals it ignores: some of those have another meaning for us.
        self.ignored: tuple[int, ...] | None = None
        #: The pid of a process that signals our whole group, as a terminal does; 0: none.
        self.sends_to_all = 0
        #: The user's command has begun and is waited for, so a signal would reach it.
        self.has_command = False


caller = Caller()


@contextmanager
def command_under_way() -> Iterator[None]:
    """While the user's command runs. An earlier signal would reach the process before its exec."""
    caller.has_command = True
    try:
        yield
    finally:
        caller.has_command = False


def ignored() -> tuple[int, ...]:
    """The signals that a program must start with ignored, because the caller or we ignore them."""
    if caller.ignored is not None:
        return caller.ignored
    # Not with `signal`, which creates an enum member for each of them.
    return tuple(n for n in ORDINARY if _signal.getsignal(n) == _signal.SIG_IGN)


def ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def in_mask(bits: int) -> tuple[int, ...]:
    """The signals in a mask as /proc shows it, without the two that belong to libc."""
    return tuple(n for n in range(1, 65) if bits >> (n - 1) & 1 and n not in (32, 33))


def heed(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def heed_children() -> object:
    """Give SIGCHLD a no-op handler; returns the previous one, for `heed_as_before`."""
    return _set_child_handler(lambda *_: None)


def heed_as_before(old: object) -> None:
    """Undo `heed_children`, unless there was no handler before.

    Another thread may already have taken a SIGCHLD that is not handled yet, and Python complains if
    there is no handler to call then. A handler that does nothing is harmless.
    """
    if old not in (None, signal.SIG_DFL):
        _set_child_handler(old)


def _set_child_handler(handler: object) -> object:
    """A no-op outside the main thread, where Python forbids it."""
    try:
        return signal.signal(signal.SIGCHLD, handler)  # type: ignore[arg-type]
    except ValueError:
        return None


def next_signal(timeout_s: float | None) -> tuple[int, bool]:
    """The next signal for us, 0 after a while; and whether the command got the signal, too.

    "A while" is `timeout_s` at most, or as long as the caller need not check anything else.
    """
    if not hasattr(signal, "sigtimedwait"):
        return next_signal_by_sigwait(timeout_s)
    tick_s = _TICK_S if timeout_s is None else min(_TICK_S, timeout_s)
    info = signal.sigtimedwait(WAITED_FOR, tick_s)
    return (0, False) if info is None else (info.si_signo, _is_from_terminal(info))


def _is_from_terminal(info: signal.struct_siginfo) -> bool:
    """Whether the command got this signal, too, because it is in our process group."""
    # If a process of the group is in another pid namespace, the kernel may report sender 0 to all.
    if info.si_code <= 0 and caller.sends_to_all and info.si_pid in (0, caller.sends_to_all):
        return info.si_signo not in _FOR_ONE
    # si_code is positive if the kernel sent it, as for the terminal's keys.
    if info.si_code <= 0 or info.si_signo not in _FROM_TERMINAL:
        return False
    # When a terminal disappears, the kernel signals only the session leader.
    return info.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


def next_signal_by_sigwait(timeout_s: float | None) -> tuple[int, bool]:
    """The same on systems without sigtimedwait, such as macOS."""
    pending = WAITED_FOR if timeout_s is None else _poll(timeout_s)
    if not pending:
        return 0, False
    signum = signal.sigwait(pending)
    # The sender is unknown: assume that the terminal sent what a key can send. A hangup that comes
    # twice does no harm; one that does not come leaves the command running.
    return signum, signum in (signal.SIGINT, signal.SIGQUIT)


def _poll(timeout_s: float) -> Set[int]:
    deadline = clock.monotonic_ns() + int(timeout_s * 1e9)
    pause_s = 0.001
    while not (pending := WAITED_FOR.intersection(signal.sigpending())):
        left_s = (deadline - clock.monotonic_ns()) / 1e9
        if left_s <= 0:
            return frozenset()
        clock.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    return pending


def drain() -> None:
    """Discard pending signals."""
    for _ in range(len(WAITED_FOR)):
        pending = signal.sigpending() & WAITED_FOR
        if not pending:
            return
        if hasattr(signal, "sigtimedwait"):
            # Another thread may take it first: waiting without a timeout could block forever.
            signal.sigtimedwait(pending, 0)
        else:
            signal.sigwait(pending)
