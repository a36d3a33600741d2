"""The first process of a standing world: it starts one program, reaps, and reports.

Like `world_init`, but its program (a shell) lives on while the view around it changes. When the
process at the other end of the channel is gone, the world ends with all that runs in it.

    told:    program, keep
    reports: ready, started (with a pidfd) or not_started, stopped, ended
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn, cast

from substrate.system import clock, spawn
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import privileges
from substrate.system.process import Stdio
from substrate.world import tiers, world_init
from substrate.world.sandbox import Sandbox, SetupError, is_privileged, mount_proc

#: What is only just about to end is not "left running".
_SETTLE_S = 0.1
_PAUSE_S = 0.01
#: Something in the namespace may be nobody's child of ours; look once in a while.
_TICK_S = 5.0
#: closerange costs nothing for descriptors that are not there.
_MOST_FDS = 1 << 20


def live(sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> NoReturn:
    """Be the world's init until the world is over."""
    try:
        _Init(sandbox, channel, mask).run()
    except ClosedError:
        pass
    finally:  # never return into a second copy of our caller
        os._exit(0)


class _Init:
    def __init__(self, sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> None:
        self._sandbox = sandbox
        self._channel = channel
        self._mask = mask
        self._program = 0
        self._news, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Only SIGCHLD may interrupt us; the keys of the terminal are the program's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def run(self) -> None:
        try:
            mount_proc()
            privileges.hide_from_tracers()
        except (SetupError, OSError) as error:
            self._channel.send("failed", str(error))
            return
        self._channel.send("ready")
        message, fds = self._channel.receive()
        if self._start(message, fds):
            status = self._wait()
            self._channel.send("ended", status, self._settle())
        message, _ = self._channel.receive()
        if message[0] == "keep":
            self._outlive()

    def _start(self, message: tuple[object, ...], fds: tuple[int, ...]) -> bool:
        _, argv, cwd, env, umask = message
        program = spawn.Program(
            cast("tuple[bytes, ...]", argv), cast(bytes, cwd), cast("dict[str, str]", env),
            Stdio(*fds),
        )  # fmt: skip
        told, tell = os.pipe()
        self._program = os.fork()
        if self._program == 0:
            _become(self._sandbox, program, cast(int, umask), self._mask, tell)
        privileges.drop_own_capabilities()
        os.close(tell)
        handle = os.pidfd_open(self._program)
        self._channel.send("forked", fds=(handle,))
        failure = os.read(told, 4096)
        if failure:
            step, _, number = failure.partition(b"\0")
            self._channel.send("not_started", step.decode(), int(number))
            return False
        self._channel.send("started")
        self._let_go()
        return True

    def _let_go(self) -> None:
        """A terminal that we keep open would not be known to have gone away."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in range(3):
            os.dup2(null, fd, inheritable=False)
        low = 2
        for fd in sorted({self._channel.fileno(), self._news, self._bell}):
            os.closerange(low + 1, fd)
            low = fd
        os.closerange(low + 1, _MOST_FDS)

    def _wait(self) -> int:
        while True:
            for pid, status in _reap():
                if pid != self._program:
                    continue
                if not os.WIFSTOPPED(status):
                    return status
                self._channel.send("stopped")
            self._pause(None)

    def _settle(self) -> int:
        """How many processes go on, once those about to end have ended."""
        deadline = clock.monotonic_ns() + int(_SETTLE_S * 1e9)
        while left := _others():
            if clock.monotonic_ns() >= deadline:
                break
            self._pause(_PAUSE_S)
            _reap()
        return left

    def _outlive(self) -> None:
        """Reap until nothing is left; nobody waits for us any more."""
        self._channel.close()
        _reap()
        while _others():
            select.select([self._news], [], [], _TICK_S)
            self._drain()
            _reap()

    def _pause(self, timeout_s: float | None) -> None:
        """Until a child changes its state; `ClosedError` if the waiting process went away."""
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        poll.register(self._channel.fileno(), select.POLLIN)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        if any(fd == self._channel.fileno() for fd, _ in ready):
            raise ClosedError  # it has nothing to say now: this can only be its end
        self._drain()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._news, 512):
                pass


def _become(
    sandbox: Sandbox, program: spawn.Program, umask: int, mask: Iterable[int], tell: int
) -> NoReturn:
    """In the program's process: take on the last restrictions and become it."""
    step, number = "start", errno.EINVAL
    try:
        spawn.move_stdio(program.stdio)
        os.umask(umask)
        step = "cwd"
        assert program.cwd is not None
        os.chdir(program.cwd)
        step = "descriptors"
        world_init.close_ways_out()
        step = "network"
        if sandbox.network is not None:
            sandbox.network.in_child()
        step = "privileges"
        tiers.restrict_process(sandbox, privileged=is_privileged())
        env = {os.fsencode(name): os.fsencode(value) for name, value in (program.env or {}).items()}
        step = "exec"
        spawn.restore_signals(mask)
        spawn.exec_first(program.argv, env)
    except OSError as error:
        number = error.errno or errno.EINVAL
    finally:  # whatever it was: never return into a second copy of our caller
        with suppress(OSError):
            os.write(tell, step.encode() + b"\0%d" % number)
        os._exit(127)


def _reap() -> list[tuple[int, int]]:
    found = []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            found.append((pid, status))
    return found


def _others() -> int:
    return sum(name.isdigit() and name != "1" for name in os.listdir("/proc"))
