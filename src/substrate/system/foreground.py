"""Running the user's command in our place, on POSIX systems.

fork and exec by hand, for three reasons: the command must start with the signal mask and the
dispositions we were started with, not with those we use while waiting; a failing exec must be
told apart from a failing command; and importing `subprocess` would cost more than the fork.

While the command runs every signal worth passing on is blocked here and fetched with sigwait:
no handler can interrupt anything, none can be lost between fork and wait, and (where the system
has sigtimedwait) we learn who sent it. That matters for Ctrl-C: the terminal sends it to the whole
process group, so the command has it already and must not get it twice; `kill -INT` to us alone
has to be passed on.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

from substrate.errors import SubstrateError
from substrate.system import clock, environment, process_tree
from substrate.system.process import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_TIMED_OUT,
    Finished,
    PathArg,
    Stdio,
    start_error,
)


class Program(NamedTuple):
    argv: tuple[bytes, ...]
    cwd: PathArg | None
    env: Mapping[str, str] | None
    stdio: Stdio


class Limits(NamedTuple):
    timeout_s: float | None
    grace_s: float
    kill_children: bool


#: The terminal sends these to the whole group; by themselves they are not ours to pass on.
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
_PASSED_ON = _FROM_TERMINAL | {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
_WAITED_FOR = _PASSED_ON | {signal.SIGCHLD, signal.SIGALRM}
#: SIGCHLD is not lost, but a thread that does not block it might eat it: look once in a while.
_TICK_S = 1.0
#: A child seen stopped this long was stopped alone, not by a Ctrl-Z that stopped us as well.
_SETTLE_S = 0.05


def run(program: Program, limits: Limits) -> Finished:
    """See `process.run_foreground`."""
    started = clock.monotonic_ns()
    finds_orphans = limits.kill_children or limits.timeout_s is not None
    adopting = finds_orphans and process_tree.adopt_orphans(True)
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    # Where SIGCHLD is ignored (an inherited disposition) nobody could be waited for, and some
    # systems drop even a blocked SIGCHLD unless it has a handler.
    old_chld = _set_handler(signal.SIGCHLD, lambda *_: None)
    try:
        pid, error = _start(program, old_mask)
        if error is not None:
            return _not_started(program, error, clock.monotonic_ns() - started)
        child = _Child(pid, limits, started)
        child.wait()
        killed = child.end_leftovers() if limits.kill_children else 0
        return child.finished(clock.monotonic_ns() - started, killed)
    finally:
        _set_handler(signal.SIGCHLD, old_chld)
        # What is still pending was meant for the command: it must not end us now.
        _drain()
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        if adopting:
            process_tree.adopt_orphans(False)


class _Child:
    """One running command and what has become of it."""

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
            signum, from_terminal = _next_signal(self._patience_s())
            if signum in _PASSED_ON and not from_terminal:
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

    def end_leftovers(self) -> int:
        """End what the command left running, as far as it can still be found; how many."""
        left = process_tree.descendants(os.getpid())
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
        """A program that stopped only itself: stop too, so that the shell gets its prompt back.

        Ctrl-Z stops us directly; by the time we see that the child was stopped, both go on.
        SIGTSTP, not SIGSTOP: where no shell could ever continue us the kernel drops it.
        """
        clock.sleep(_SETTLE_S)
        if process_tree.is_stopped(self.pid):
            os.kill(os.getpid(), signal.SIGTSTP)
            self._send(signal.SIGCONT)

    def _send(self, signum: int) -> None:
        # Not yet reaped, so the pid cannot have passed to somebody else. A program that changed
        # its user id cannot be signalled by us; then there is nothing to pass on.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signum)

    def _patience_s(self) -> float:
        if self.deadline_ns is None:
            return _TICK_S
        return min(_TICK_S, max(0.0, (self.deadline_ns - clock.monotonic_ns()) / 1e9))

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
        # A stopped process acts on TERM only once it goes on.
        self._send(signal.SIGCONT)
        process_tree.send(tree, signal.SIGTERM)
        process_tree.send(tree, signal.SIGCONT)
        self.deadline_ns = clock.monotonic_ns() + int(self.limits.grace_s * 1e9)

    def _kill_ended(self) -> None:
        """The command is gone; what it had started gets the rest of its grace, then KILL."""
        left_ns = 0 if self.deadline_ns is None else self.deadline_ns - clock.monotonic_ns()
        process_tree.end_all(self.ended, max(0.0, left_ns / 1e9))


def _start(program: Program, mask: Iterable[int]) -> tuple[int, OSError | None]:
    """Fork and exec; the child's pid, or the reason why exec failed (the child is reaped)."""
    told, tell = os.pipe()  # close-on-exec: reading its end means that exec worked
    try:
        pid = os.fork()
        if pid == 0:
            _exec(program, mask, tell)
    except OSError as error:
        os.close(tell)
        os.close(told)
        raise SubstrateError(f"no process could be started: {error.strerror}") from error
    os.close(tell)
    try:
        failure = _read_all(told)
    finally:
        os.close(told)
    if not failure:
        return pid, None
    os.waitpid(pid, 0)
    number = int(failure)
    # OSError picks its own subclass from the number.
    return pid, OSError(number, os.strerror(number))


def _exec(program: Program, mask: Iterable[int], tell: int) -> NoReturn:
    """In the child: become the program, or say why not and go."""
    number = errno.EINVAL  # for an argument that exec cannot take, such as one with a NUL
    try:
        _move_stdio(program.stdio)
        if program.cwd is not None:
            os.chdir(program.cwd)
        for signum in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)):
            if signum is not None:  # Python ignores these; exec would pass that on
                signal.signal(signum, signal.SIG_DFL)
        env = _environment(program.env)
        _reset_pending_safe(mask)
        _exec_first(program.argv, env)
    except OSError as error:
        number = error.errno or errno.EINVAL
    finally:  # whatever it was: never return into a second copy of our caller
        with suppress(OSError):
            os.write(tell, b"%d" % number)
        os._exit(EXIT_NOT_FOUND)


def _reset_pending_safe(mask: Iterable[int]) -> None:
    """Give the program our old mask, with no handler of ours left to run in between."""
    for signum in _WAITED_FOR:
        if signal.getsignal(signum) not in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _environment(env: Mapping[str, str] | None) -> Mapping[bytes, bytes]:
    source = environment.current().variables if env is None else env
    return {os.fsencode(name): os.fsencode(value) for name, value in source.items()}


def _exec_first(argv: tuple[bytes, ...], env: Mapping[bytes, bytes]) -> NoReturn:
    """exec the first match on PATH, as execvp(3): a file that may not be run does not end the
    search, and a script without ``#!`` is given to sh."""
    refused: OSError | None = None
    for path in _candidates(argv[0], env):
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = refused or error
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve(b"/bin/sh", (b"sh", path, *argv[1:]), env)
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _candidates(name: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    if not name:
        return []
    search = env.get(b"PATH", os.fsencode(os.defpath))
    return [os.path.join(directory or b".", name) for directory in search.split(b":")]


def _move_stdio(stdio: Stdio) -> None:
    # Copies above 2 first: one of the wanted descriptors may itself be 0, 1 or 2.
    copies = [None if fd is None else _above_stdio(fd) for fd in stdio]
    for target, fd in enumerate(copies):
        if fd is not None:
            os.dup2(fd, target, inheritable=True)


def _above_stdio(fd: int) -> int:
    low = []
    copy = os.dup(fd)
    while copy <= 2:
        low.append(copy)
        copy = os.dup(fd)
    for spare in low:
        os.close(spare)
    return copy


def _not_started(program: Program, error: OSError, duration_ns: int) -> Finished:
    found = not isinstance(error, FileNotFoundError)
    code = EXIT_NOT_EXECUTABLE if found else EXIT_NOT_FOUND
    return Finished(code, None, False, duration_ns, start_error(program.argv[0], error))


def _next_signal(timeout_s: float) -> tuple[int, bool]:
    """The next signal for us, 0 after the timeout; and whether it came from the terminal."""
    if hasattr(signal, "sigtimedwait"):
        info = signal.sigtimedwait(_WAITED_FOR, timeout_s)
        if info is None:
            return 0, False
        # si_code is positive if the kernel sent it, as it does for the terminal's keys.
        return info.si_signo, info.si_code > 0
    signal.setitimer(signal.ITIMER_REAL, max(timeout_s, 1e-6))
    try:
        signum = signal.sigwait(_WAITED_FOR)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if signum == signal.SIGALRM:
        return 0, False
    # Nobody can say who sent it: take what the terminal can send for the terminal's.
    return signum, signum in _FROM_TERMINAL


def _drain() -> None:
    for _ in range(len(_WAITED_FOR)):
        pending = signal.sigpending() & _WAITED_FOR
        if not pending:
            return
        signal.sigwait(pending)


def _set_handler(signum: int, handler: object) -> object:
    """`signal.signal`, or nothing outside the main thread, where Python forbids it."""
    try:
        return signal.signal(signum, handler)  # type: ignore[arg-type]
    except ValueError:
        return None


def _read_all(fd: int) -> bytes:
    out = b""
    while chunk := os.read(fd, 64):
        out += chunk
    return out
