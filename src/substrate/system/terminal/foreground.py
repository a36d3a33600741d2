"""Running the user's command in our place, on POSIX systems."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from substrate.system import clock
from substrate.system.process import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_TIMED_OUT,
    Finished,
    process_tree,
    signals,
    spawn,
    start_error,
)


class Limits(NamedTuple):
    timeout_s: float | None
    grace_s: float
    kill_children: bool


#: A child that stays stopped this long was stopped alone, not by a Ctrl-Z that also stopped us.
_SETTLE_S = 0.05


def run(program: spawn.Program, limits: Limits, prepare: Callable[[], None]) -> Finished:
    """See `process.run_foreground`."""
    started = clock.monotonic_ns()
    finds_orphans = limits.kill_children or limits.timeout_s is not None
    adopting = finds_orphans and process_tree.adopt_orphans(True)
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.WAITED_FOR)
    # Where SIGCHLD is ignored (an inherited disposition) no child could be waited for, and some
    # systems drop even a blocked SIGCHLD unless it has a handler.
    old_chld = signals.heed_children()
    try:
        # Children that we already have do not belong to the command.
        ours = set(process_tree.descendants(os.getpid())) if limits.kill_children else set()
        mask = old_mask if signals.caller.mask is None else signals.caller.mask
        pid, error = spawn.start(program, mask, prepare)
        if error is not None:
            return _not_started(program, error, clock.monotonic_ns() - started)
        child = _Child(pid, limits, started)
        with signals.command_under_way():
            child.wait()
        killed = child.end_leftovers(ours) if limits.kill_children else 0
        return child.finished(clock.monotonic_ns() - started, killed)
    finally:
        signals.heed_as_before(old_chld)
        # Signals that are still pending were meant for the command: they must not end us now.
        signals.drain()
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        if adopting:
            process_tree.adopt_orphans(False)


class _Child:
    """One running command and how it ended."""

    def __init__(self, pid: int, limits: Limits, started_ns: int) -> None:
        self.pid = pid
        self.limits = limits
        self.status: int | None = None
        self.timed_out = False
        #: When to act next: first TERM, then KILL.
        self.deadline_ns = (
            None if limits.timeout_s is None else started_ns + int(limits.timeout_s * 1e9)
        )
        self.ended: list[process_tree.Process] = []

    def wait(self) -> None:
        while not self._reap():
            signum, from_terminal = signals.next_signal(self._patience_s())
            if signum in signals.PASSED_ON and not from_terminal:
                self._send(signum)
            if self.deadline_ns is not None and clock.monotonic_ns() >= self.deadline_ns:
                self._enforce_timeout()
        if self.timed_out:
            self._kill_ended()

    def finished(self, duration_ns: int, killed_children: int) -> Finished:
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        killed_by = -code if code < 0 else None
        exit_code = 128 - code if code < 0 else code
        if self.timed_out:
            exit_code = EXIT_TIMED_OUT
        return Finished(exit_code, killed_by, self.timed_out, duration_ns, "", killed_children)

    def end_leftovers(self, ours: set[process_tree.Process]) -> int:
        """End what the command left running, as far as it can still be found; returns how many."""
        left = [one for one in process_tree.descendants(os.getpid()) if one not in ours]
        process_tree.end_all(left, self.limits.grace_s)
        return len(left)

    def _reap(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return False
        if os.WIFSTOPPED(status):
            self._stop_with_it()
            return False
        self.status = status
        return True

    def _stop_with_it(self) -> None:
        """If a program stopped only itself, stop too, so that the shell gets its prompt back.

        Ctrl-Z stops us directly; when we see that the child was stopped, both are running again.
        SIGTSTP, not SIGSTOP: the kernel drops it where no shell could ever continue us.
        """
        clock.sleep(_SETTLE_S)
        if process_tree.is_stopped(self.pid):
            os.kill(os.getpid(), signal.SIGTSTP)
            self._send(signal.SIGCONT)

    def _send(self, signum: int) -> None:
        # The child is not reaped yet, so no other process can have its pid. If the program changed
        # its user id, we may not signal it; then there is nothing to pass on.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signum)

    def _patience_s(self) -> float | None:
        if self.deadline_ns is None:
            return None
        return max(0.0, (self.deadline_ns - clock.monotonic_ns()) / 1e9)

    def _enforce_timeout(self) -> None:
        tree = process_tree.descendants(self.pid)
        if self.timed_out:
            self._send(signal.SIGKILL)
            process_tree.send(tree, signal.SIGKILL)
            self.deadline_ns = None
            return
        self.timed_out = True
        self.ended = tree
        self._send(signal.SIGTERM)
        # A stopped process handles TERM only once it continues.
        self._send(signal.SIGCONT)
        process_tree.send(tree, signal.SIGTERM)
        process_tree.send(tree, signal.SIGCONT)
        self.deadline_ns = clock.monotonic_ns() + int(self.limits.grace_s * 1e9)

    def _kill_ended(self) -> None:
        """After the command ended: let its descendants have the rest of the grace, then KILL."""
        left_ns = 0 if self.deadline_ns is None else self.deadline_ns - clock.monotonic_ns()
        process_tree.end_all(self.ended, max(0.0, left_ns / 1e9))


def _not_started(program: spawn.Program, error: OSError, duration_ns: int) -> Finished:
    found = not isinstance(error, FileNotFoundError)
    code = EXIT_NOT_EXECUTABLE if found else EXIT_NOT_FOUND
    return Finished(code, None, False, duration_ns, start_error(program.argv[0], error))
