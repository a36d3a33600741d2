"""Waiting for signals instead of being interrupted by them, on POSIX systems.

While a command runs every signal worth passing on is blocked here and fetched: no handler can
interrupt anything, none can be lost between fork and wait, and (where the system has
sigtimedwait) we learn who sent it. That matters for Ctrl-C: the terminal sends it to the whole
process group, so the command has it already and must not get it twice; a ``kill -INT`` to us
alone has to be passed on.
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

#: The terminal sends these to the whole group; by themselves they are not ours to pass on.
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
_FOR_ONE = frozenset({signal.SIGUSR1, signal.SIGUSR2})
PASSED_ON = _FROM_TERMINAL | _FOR_ONE | {signal.SIGTERM}
WAITED_FOR = PASSED_ON | {signal.SIGCHLD}
#: Python ignores these for itself: what whoever started us wanted is not known.
PYTHONS_OWN = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)
)
#: Of those above 31 two are libc's own, and `posix_spawn` leaves them ignored.
ORDINARY = tuple(number for number in range(1, 32) if number not in PYTHONS_OWN)
#: What the one blocks for whom we run a command, where that is not who started us; None: as we do.
callers_mask: tuple[int, ...] | None = None
#: The same of what it ignores: some of those have another meaning for us.
callers_ignored: tuple[int, ...] | None = None
#: A process that sends its signals to our whole group, as a terminal does; 0 if there is none.
sent_to_all_by = 0
#: The user's command has begun and is waited for: whom a signal would reach.
has_command = False
#: SIGCHLD is not lost, but a thread that does not block it might eat it: look once in a while.
_TICK_S = 1.0
#: Between two looks for a signal, on systems that cannot wait for one with a timeout.
_LONGEST_PAUSE_S = 0.02


@contextmanager
def command_under_way() -> Iterator[None]:
    """While the user's command runs; what is sent before would reach what is to become it."""
    global has_command
    has_command = True
    try:
        yield
    finally:
        has_command = False


def ignored() -> tuple[int, ...]:
    """Those that a program is to be started with ignored, because we or the caller were."""
    if callers_ignored is not None:
        return callers_ignored
    # Not by `signal`, which finds a name for each of them.
    return tuple(n for n in ORDINARY if _signal.getsignal(n) == _signal.SIG_IGN)


def ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def in_mask(bits: int) -> tuple[int, ...]:
    """Those of a mask as /proc has it, without the two that are libc's own."""
    return tuple(n for n in range(1, 65) if bits >> (n - 1) & 1 and n not in (32, 33))


def heed(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def heed_children() -> object:
    """Give SIGCHLD a handler that does nothing; returns what stood there, for `heed_as_before`."""
    return _set_child_handler(lambda *_: None)


def heed_as_before(old: object) -> None:
    """Undo `heed_children`, unless there was no handler.

    A SIGCHLD that another thread has taken by then is still to be handled, and Python complains
    of one for which there is nothing to call. To have a handler that does nothing changes nothing.
    """
    if old not in (None, signal.SIG_DFL):
        _set_child_handler(old)


def _set_child_handler(handler: object) -> object:
    """Nothing outside the main thread, where Python forbids it."""
    try:
        return signal.signal(signal.SIGCHLD, handler)  # type: ignore[arg-type]
    except ValueError:
        return None


def next_signal(timeout_s: float | None) -> tuple[int, bool]:
    """The next signal for us, 0 after a while; and whether the command has got it, too.

    "A while" is `timeout_s` at most, or as long as the caller need not look for anything else.
    """
    if not hasattr(signal, "sigtimedwait"):
        return next_signal_by_sigwait(timeout_s)
    tick_s = _TICK_S if timeout_s is None else min(_TICK_S, timeout_s)
    info = signal.sigtimedwait(WAITED_FOR, tick_s)
    return (0, False) if info is None else (info.si_signo, _is_from_terminal(info))


def _is_from_terminal(info: signal.struct_siginfo) -> bool:
    """Whether the command, being in our process group, has got this signal, too."""
    # Where one of the group is in a pid namespace of its own, the kernel may say 0 to all of them.
    if info.si_code <= 0 and sent_to_all_by and info.si_pid in (0, sent_to_all_by):
        return info.si_signo not in _FOR_ONE
    # si_code is positive if the kernel sent it, as it does for the terminal's keys.
    if info.si_code <= 0 or info.si_signo not in _FROM_TERMINAL:
        return False
    # When a terminal goes away the kernel tells the session's leader alone.
    return info.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


def next_signal_by_sigwait(timeout_s: float | None) -> tuple[int, bool]:
    """The same on systems without sigtimedwait, macOS among them."""
    pending = WAITED_FOR if timeout_s is None else _poll(timeout_s)
    if not pending:
        return 0, False
    signum = signal.sigwait(pending)
    # Nobody can say who sent it: take what a key sends for the terminal's. A hangup that comes
    # twice does no harm; one that does not come leaves the command behind.
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
    """Forget what is pending."""
    for _ in range(len(WAITED_FOR)):
        pending = signal.sigpending() & WAITED_FOR
        if not pending:
            return
        if hasattr(signal, "sigtimedwait"):
            # Another thread may take it first: to wait for it could be to wait for ever.
            signal.sigtimedwait(pending, 0)
        else:
            signal.sigwait(pending)
