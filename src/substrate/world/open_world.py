"""The waiting side of a world: make it, run a command in it in the foreground, end it.

`open_world` may be called ahead of time and from a small warm process: what takes time is then
done when the command arrives. The command stays in our process group, so the terminal's keys
reach it directly; a signal sent to us alone is passed on (`system.foreground` does the same for
a command without a world).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, NoReturn, cast

from substrate.errors import WorkspaceError, WorldFailedError
from substrate.system import afterwards, clock, process_tree, signals, spawn
from substrate.system import channel as channels
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import namespaces, privileges
from substrate.system.process import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_TIMED_OUT,
    KILL_GRACE_S,
    Finished,
    current_umask,
    start_error,
)
from substrate.world import sandbox as sandboxes
from substrate.world import world_init
from substrate.world.sandbox import Sandbox, SetupError

#: A command seen stopped this long was stopped alone, not by a Ctrl-Z that stopped us as well.
_SETTLE_S = 0.05


class Limits(NamedTuple):
    timeout_s: float | None = None
    kill_children: bool = False
    grace_s: float = KILL_GRACE_S


class Ended(NamedTuple):
    finished: Finished
    #: Processes that go on in the world; 0: the world is gone, mounts and all.
    left_running: int
    #: The world's init, as seen here.
    init_pid: int
    #: Where its processes go on: user and pid namespace by inode.
    namespaces: tuple[int, int] | None = None


class _Ready(NamedTuple):
    """What the maker and the init tell of a world that is there."""

    init_pid: int
    #: The command's process, and the channel on which it waits for its program.
    pidfd: int
    orders: Channel
    #: What listens at the world's door; -1 if it has none.
    door: int


class OpenWorld:
    """A world that is ready for its command. Use it once, or `close` it."""

    def __init__(self, sandbox: Sandbox, channel: Channel, ready: _Ready) -> None:
        self._sandbox = sandbox
        self._channel = channel
        self.init_pid = ready.init_pid
        self._pidfd = ready.pidfd
        self._orders = ready.orders
        self._door = Door(ready.door, ready.init_pid)

    @property
    def pids(self) -> tuple[int, int]:
        """The world's init and the process that becomes the command, as seen here."""
        return self.init_pid, _pid_of(self._pidfd)

    @property
    def is_there(self) -> bool:
        """Whether it still waits for its command: nothing has been heard from it."""
        return not self._channel.ready()

    def run(
        self,
        program: spawn.Program,
        limits: Limits,
        on_start: Callable[[], None] = lambda: None,
        ended_mark: bytes = b"",
        on_call: Callable[[int, int], None] | None = None,
    ) -> Ended:
        """Start the command and wait for it; `on_start` is called once it runs. `ended_mark` is a
        file that gets a byte once nothing of it runs any more, if something outlives it. `on_call`
        (see `RunRequest`) is called when somebody is at the door.

        Raises `WorldFailedError` if it was not started for a reason of ours, and never after it
        was; `WorkspaceError` if there is no such directory in the world.
        """
        started = clock.monotonic_ns()
        with _Signals() as old_mask:
            del old_mask
            try:
                self._send(program)
                failure = self._failure(program)
                if failure is not None:
                    duration = clock.monotonic_ns() - started
                    self._end()
                    return Ended(failure._replace(duration_ns=duration), 0, self.init_pid)
                on_start()
                self._door.on_call = on_call
                with _Terminal():
                    return self._attend(limits, started, ended_mark)
            except ClosedError as error:
                self._end()
                raise WorldFailedError("the world ended before the command did") from error
            finally:
                os.close(self._pidfd)

    def close(self) -> None:
        """End it without a command."""
        self._orders.close()
        os.close(self._pidfd)
        self._end()
        if self._sandbox.network is not None:
            self._sandbox.network.finish()

    def _send(self, program: spawn.Program) -> None:
        wanted = {target: fd for target, fd in enumerate(program.stdio) if fd is not None}
        env = dict(program.env or {})
        cwd = os.fsencode(program.cwd or b".")
        # If nobody is there to take it, it has said why, and `_failure` reads it.
        with suppress(ClosedError):
            self._orders.send(
                "program", program.argv, cwd, env, current_umask(), tuple(wanted),
                fds=tuple(wanted.values()),
            )  # fmt: skip

    def _failure(self, program: spawn.Program) -> Finished | None:
        """How the start failed, if it did: as a shell puts it, or as an error of ours."""
        said = self._orders.rest()  # exec closes the other end
        self._orders.close()
        if not said:
            raise ClosedError
        said = said.removeprefix(world_init.ATTEMPT)
        if not said:
            return None
        step, _, number = said.partition(b"\0")
        error = OSError(int(number), os.strerror(int(number)))
        if step == b"exec":
            found = not isinstance(error, FileNotFoundError)
            code = EXIT_NOT_EXECUTABLE if found else EXIT_NOT_FOUND
            return Finished(code, None, False, 0, start_error(program.argv[0], error))
        self._end()
        if step == b"cwd":
            where = os.fsdecode(program.cwd or b".")
            raise WorkspaceError(f"{where} cannot be entered in the world: {error.strerror}")
        raise WorldFailedError(f"the command was not started: {step.decode()}: {error.strerror}")

    def _attend(self, limits: Limits, started: int, ended_mark: bytes) -> Ended:
        command = _Command(self, self._pidfd, limits, started)
        is_lost = False
        try:
            status, left, where = command.wait()
        except ClosedError:  # the init was killed, for want of memory perhaps, and all with it
            status, left, where = signal.SIGKILL, 0, ()
            if self._sandbox.company is not None:
                # It was not the first of its pid namespace. Nobody can tell any more who was
                # the command's there: it goes on until they all have ended.
                space = self._sandbox.company.space
                is_lost, left, where = True, 1, (space.user_ns, space.pid_ns)
        killed = 0
        if left and not is_lost and (limits.kill_children or command.timed_out):
            killed = command.end_leftovers()
            left = 0
        if left:
            self._door.close()
            self._keep(ended_mark)
        else:
            self._end()
        duration = clock.monotonic_ns() - started
        spaces = cast("tuple[int, int]", where) if left else None
        return Ended(command.finished(status, duration, killed), left, self.init_pid, spaces)

    def _keep(self, ended_mark: bytes) -> None:
        """Processes go on: the init stays with them, and marks the end of the last one."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        mark = os.open(ended_mark, flags, 0o600) if ended_mark else -1
        with suppress(ClosedError):
            self._channel.send("keep", fds=(mark,) if mark >= 0 else ())
        if mark >= 0:
            os.close(mark)
        self._channel.close()

    def _end(self) -> None:
        """Close the channel, at which the init exits; once it is reaped no mount is left.

        Nothing runs in the world any more, so the layer can be read before that.
        """
        self._door.close()
        self._channel.close()
        afterwards.do(self._reap)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            os.waitpid(self.init_pid, 0)


class Door:
    """What listens to calls from inside the world, until somebody takes them over."""

    def __init__(self, fd: int, init_pid: int) -> None:
        self._fd = fd
        self._init_pid = init_pid
        self.on_call: Callable[[int, int], None] | None = None

    def watch(self) -> None:
        """A call is told by the signal that the waiting process waits for anyway."""
        if self._fd >= 0 and self.on_call is not None:
            channels.announce_by(self._fd, signal.SIGCHLD)

    def look(self) -> None:
        """Hand the door over, if somebody is there."""
        if self._fd < 0 or self.on_call is None or not channels.is_readable(self._fd):
            return
        channels.announce_no_more(self._fd)
        try:
            self.on_call(self._fd, self._init_pid)
        except OSError:
            pass  # nobody can answer; who calls finds the door shut
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Command:
    """The running command and what has become of it."""

    def __init__(self, world: OpenWorld, pidfd: int, limits: Limits, started_ns: int) -> None:
        self._channel = world._channel
        self._door = world._door
        self._init_pid = world.init_pid
        self._pidfd = pidfd
        self._limits = limits
        self.timed_out = False
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
        pid = _pid_of(self._pidfd)
        if pid > 0 and process_tree.is_stopped(pid):
            os.kill(os.getpid(), signal.SIGTSTP)
            self._send(signal.SIGCONT)

    def _send(self, signum: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def _patience_s(self) -> float | None:
        if self._deadline_ns is None:
            return None
        return max(0.0, (self._deadline_ns - clock.monotonic_ns()) / 1e9)

    def _enforce_timeout(self) -> None:
        tree = process_tree.descendants(self._init_pid)
        if self.timed_out:
            process_tree.send(tree, signal.SIGKILL)
            self._deadline_ns = None
            return
        self.timed_out = True
        process_tree.send(tree, signal.SIGTERM)
        # A stopped process acts on TERM only once it goes on.
        process_tree.send(tree, signal.SIGCONT)
        self._deadline_ns = clock.monotonic_ns() + int(self._limits.grace_s * 1e9)


class _Terminal:
    """A shell that was the terminal's foreground cannot give it back: it cannot see our group."""

    def __enter__(self) -> None:
        self._fd = next((fd for fd in range(3) if os.isatty(fd)), None)
        if self._fd is not None:
            with suppress(OSError):
                if os.tcgetpgrp(self._fd) == os.getpgrp():
                    return
        self._fd = None

    def __exit__(self, *_: object) -> None:
        if self._fd is None:
            return
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with suppress(OSError):
            os.tcsetpgrp(self._fd, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


class _Signals:
    """While a command is under way: signals wait for us, orphans come to us."""

    def __enter__(self) -> Iterable[int]:
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.WAITED_FOR)
        self._old_chld = signals.heed_children()
        return self._old_mask

    def __exit__(self, *_: object) -> None:
        signals.heed_as_before(self._old_chld)
        # What is still pending was meant for the command: it must not end us now.
        signals.drain()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)


def open_world(sandbox: Sandbox) -> OpenWorld:
    """Make the namespaces and mounts, up to the point where only the command is missing.

    Raises `WorldFailedError` with the step that the system refused.
    """
    if sandbox.network is not None:
        sandbox.network.before_fork()
    ours, theirs = channels.pair()
    # The maker ends once the init is there; the init must then be ours to wait for.
    process_tree.adopt_orphans(True)
    with _Signals() as mask:
        try:
            maker = os.fork()
            if maker == 0:
                # The world ends when this closes; so it must not hold it open itself.
                ours.close()
                _make(sandbox, theirs, mask)
            theirs.close()
            opened = OpenWorld(sandbox, ours, _await_ready(ours, maker))
            if sandbox.network is not None:
                sandbox.network.parent(opened.pids[1], ())
            return opened
        finally:
            process_tree.adopt_orphans(False)


def _make(sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> NoReturn:
    """In the maker: the world, then its init; then nothing more."""
    try:
        sandboxes.enter(sandbox, channel)
        if sandbox.company is not None:  # from its first moment others can see the init
            privileges.hide_from_tracers()
        pid = os.fork()
        if pid == 0:
            world_init.live(sandbox, channel, mask)
        channel.send("init", pid)
        os._exit(0)
    except SetupError as error:
        with suppress(ClosedError):
            channel.send("failed", str(error))
    except OSError as error:
        with suppress(ClosedError):
            channel.send("failed", error.strerror or str(error))
    finally:
        os._exit(1)


def _await_ready(channel: Channel, maker: int) -> _Ready:
    init_pid, door, given = 0, -1, cast("tuple[int, ...]", ())
    try:
        while not (init_pid and given):
            message, fds = channel.receive()
            if message[0] == "map":
                namespaces.map_every_id(maker)
                channel.send("go")
            elif message[0] == "init":
                init_pid = cast(int, message[1])
            elif message[0] == "door":
                door = fds[0]
            elif message[0] == "ready":
                given = fds
            else:
                channel.close()
                raise WorldFailedError(f"no world could be made: {message[-1]}")
    except (ClosedError, OSError) as error:
        channel.close()
        raise WorldFailedError(f"no world could be made: {_words(error)}") from error
    finally:
        with suppress(ChildProcessError):
            os.waitpid(maker, 0)
    pidfd, orders = given
    return _Ready(init_pid, pidfd, Channel(orders), door)


def _words(error: ClosedError | OSError) -> str:
    return str(error) if isinstance(error, OSError) else "its maker ended early"


def _pid_of(pidfd: int) -> int:
    """The process as we number it; -1 once it is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1
