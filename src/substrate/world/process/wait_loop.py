"""Waiting for a command in a world: its signals, its time, the terminal, calls from inside.

The command stays in our process group, so the terminal's keys reach it directly; a signal sent to
us alone is passed on (`system/terminal/foreground.py` does the same for a command without a world).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, cast

from substrate.system import clock
from substrate.system.process import (
    EXIT_TIMED_OUT,
    KILL_GRACE_S,
    Channel,
    Finished,
    process_tree,
    signals,
)
from substrate.system.process import fd_channel as channels
from substrate.system.terminal import terminal_group

#: A command seen stopped this long was stopped alone, not by a Ctrl-Z that also stopped us.
_SETTLE_S = 0.05
#: A command that ends within this time counts as ending at once, as most do.
_AT_ONCE_S = 0.004


class Limits(NamedTuple):
    timeout_s: float | None = None
    kill_children: bool = False
    grace_s: float = KILL_GRACE_S


class Door:
    """The socket for calls from inside the world, until the broker takes it over."""

    def __init__(self, fd: int, init_pid: int) -> None:
        self._fd = fd
        self._init_pid = init_pid
        self.on_call: Callable[[int, int], None] | None = None

    def watch(self) -> None:
        """Have a call announced by SIGCHLD, which the waiting process waits for anyway."""
        if self._fd >= 0 and self.on_call is not None:
            channels.announce_by(self._fd, signal.SIGCHLD)

    def look(self) -> None:
        """Hand the socket over, if a process has connected."""
        if self._fd < 0 or self.on_call is None or not channels.is_readable(self._fd):
            return
        channels.announce_no_more(self._fd)
        try:
            self.on_call(self._fd, self._init_pid)
        except OSError:
            pass  # there is no broker; the caller's connection is closed
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Attended:
    """The running command, and how it ended."""

    def __init__(
        self,
        init_pid: int,
        channel: Channel,
        door: Door,
        pidfd: int,
        limits: Limits,
        started_ns: int,
    ) -> None:
        self._channel = channel
        self._door = door
        self._init_pid = init_pid
        self._pidfd = pidfd
        self._limits = limits
        self.timed_out = False
        #: Called once, if the command does not end at once.
        self.later: Callable[[], None] | None = None
        self._deadline_ns = (
            None if limits.timeout_s is None else started_ns + int(limits.timeout_s * 1e9)
        )

    def wait(self) -> tuple[int, int, tuple[int, ...]]:
        """The command's wait status, how many processes it left, and in which namespaces."""
        self._channel.announce_by(signal.SIGCHLD)
        self._door.watch()
        while True:
            self._door.look()
            while self._channel.ready():
                message, _ = self._channel.receive()
                if message[0] == "ended":
                    where = cast("tuple[int, ...]", message[3])
                    return cast(int, message[1]), cast(int, message[2]), where
                self._stop_with_it()
            signum, from_terminal = signals.next_signal(self._patience_s())
            if not signum and self.later is not None:
                later, self.later = self.later, None
                later()
            if signum in signals.PASSED_ON and not from_terminal:
                self._send(signum)
            if self._deadline_ns is not None and clock.monotonic_ns() >= self._deadline_ns:
                self._enforce_timeout()

    def finished(self, status: int, duration_ns: int, killed_children: int) -> Finished:
        code = os.waitstatus_to_exitcode(status)
        exit_code = 128 - code if code < 0 else code
        if self.timed_out:
            exit_code = EXIT_TIMED_OUT
        killed_by = -code if code < 0 else None
        return Finished(exit_code, killed_by, self.timed_out, duration_ns, "", killed_children)

    def end_leftovers(self) -> int:
        left = process_tree.descendants(self._init_pid)
        grace_ns = 0 if self._deadline_ns is None else self._deadline_ns - clock.monotonic_ns()
        grace_s = max(0.0, grace_ns / 1e9) if self.timed_out else self._limits.grace_s
        process_tree.end_all(left, grace_s)
        return len(left)

    def _stop_with_it(self) -> None:
        """As `foreground` does: a command that stopped only itself stops us, too."""
        clock.sleep(_SETTLE_S)
        pid = pid_of(self._pidfd)
        if pid > 0 and process_tree.is_stopped(pid):
            os.kill(os.getpid(), signal.SIGTSTP)
            self._send(signal.SIGCONT)

    def _send(self, signum: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def _patience_s(self) -> float | None:
        most_s = None if self.later is None else _AT_ONCE_S
        if self._deadline_ns is None:
            return most_s
        left_s = max(0.0, (self._deadline_ns - clock.monotonic_ns()) / 1e9)
        return left_s if most_s is None else min(left_s, most_s)

    def _enforce_timeout(self) -> None:
        tree = process_tree.descendants(self._init_pid)
        if self.timed_out:
            process_tree.send(tree, signal.SIGKILL)
            self._deadline_ns = None
            return
        self.timed_out = True
        process_tree.send(tree, signal.SIGTERM)
        # A stopped process handles TERM only once it continues.
        process_tree.send(tree, signal.SIGCONT)
        self._deadline_ns = clock.monotonic_ns() + int(self._limits.grace_s * 1e9)


class Terminal:
    """Takes the terminal back: a shell in the world cannot see our group to return it."""

    def __enter__(self) -> None:
        found = next((fd for fd in range(3) if os.isatty(fd)), None)
        self._fd = found if found is not None and terminal_group.is_ours(found) else None

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            terminal_group.take_back(self._fd)


class Signals:
    """While a command is running: signals wait for us, orphans become our children."""

    def __enter__(self) -> Iterable[int]:
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.WAITED_FOR)
        self._old_chld = signals.heed_children()
        return self._old_mask

    def __exit__(self, *_: object) -> None:
        signals.heed_as_before(self._old_chld)
        # Pending signals were meant for the command: they must not end us now.
        signals.drain()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)


def pid_of(pidfd: int) -> int:
    """The pid out here; -1 once the process is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1
