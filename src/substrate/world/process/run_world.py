"""The waiting side of a world: make it, run a command in it in the foreground, end it.

`open_world` may be called ahead of time and from a small warm process: the slow part is then
already done when the command arrives. `Attended` waits for the command.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from substrate.errors import WorkspaceError, WorldFailedError
from substrate.system import clock, umask
from substrate.system.linux import namespaces, privileges
from substrate.system.process import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    Channel,
    ClosedError,
    Finished,
    deferred_work,
    fork_child,
    process_tree,
    signals,
    spawn,
    start_error,
)
from substrate.system.process import fd_channel as channels
from substrate.system.sync import liveness_locks as alive
from substrate.world.process import sandbox as sandboxes
from substrate.world.process import world_init
from substrate.world.process.sandbox import Sandbox, SetupError
from substrate.world.process.wait_loop import Attended, Door, Limits, Signals, Terminal, pid_of


class Ended(NamedTuple):
    finished: Finished
    #: Processes that keep running in the world; 0: the world is gone, with all its mounts.
    left_running: int
    #: The world's init, by its pid out here.
    init_pid: int
    #: Where its processes keep running: user and pid namespace by inode.
    namespaces: tuple[int, int] | None = None
    #: Tokens of the locks that the init holds: while any process of the command runs, and as long
    #: as the init itself lives. See `system/sync/liveness_locks.py`.
    alive: str = ""
    space_alive: str = ""


class _Ready(NamedTuple):
    """What the maker and the init report about a world that is ready."""

    init_pid: int
    #: The command's process, and the channel on which it waits for its program.
    pidfd: int
    orders: Channel
    #: The listening socket of the world's door; -1 if it has none.
    door: int
    #: The process that keeps the memory of the command's process until its program has begun; -1:
    #: none.
    keeper: int = -1
    #: A copy of the view's mount, if one was requested.
    view: int = -1


class OpenWorld:
    """A world that is ready for its command. Use it once, or `close` it."""

    def __init__(self, sandbox: Sandbox, channel: Channel, ready: _Ready) -> None:
        self._sandbox = sandbox
        self._channel = channel
        self.init_pid = ready.init_pid
        self._pidfd = ready.pidfd
        self._orders = ready.orders
        self._door = Door(ready.door, ready.init_pid)
        self._keeper = ready.keeper
        #: A copy of the view's mount, which we must close; -1 if there is none.
        self.view = ready.view
        #: Names below the root that the command must not see: `RunRequest.absent`.
        self.absent: tuple[bytes, ...] = ()

    @property
    def pids(self) -> tuple[int, int]:
        """The world's init and the process that becomes the command, by their pids out here."""
        return self.init_pid, pid_of(self._pidfd)

    @property
    def is_there(self) -> bool:
        """Whether it still waits for its command: it has not reported anything."""
        return not self._channel.ready()

    def run(
        self,
        program: spawn.Program,
        limits: Limits,
        on_start: Callable[[], None] = lambda: None,
        prepare: Callable[[], None] = lambda: None,
        ended_mark: bytes = b"",
        on_call: Callable[[int, int], None] | None = None,
    ) -> Ended:
        """Start the command and wait for it.

        `prepare` is called before, after the last fork (if it raises, nothing runs), and `on_start`
        once the command runs. If processes outlive the command, the file `ended_mark` gets a byte
        once none of them runs any more. `on_call` (see `RunRequest`) is called when a process
        connects to the door.

        Raises `WorldFailedError` if we could not start the command, and never once it has started;
        `WorkspaceError` if there is no such directory in the world.
        """
        started = clock.monotonic_ns()
        with Signals() as old_mask:
            del old_mask
            try:
                self._prepare(prepare)
                self._send(program)
                failure = self._failure(program)
                if failure is not None:
                    duration = clock.monotonic_ns() - started
                    self._end()
                    return Ended(failure._replace(duration_ns=duration), 0, self.init_pid)
                with signals.command_under_way():
                    on_start()
                    self._door.on_call = on_call
                    with Terminal():
                        return self._attend(limits, started, ended_mark)
            except ClosedError as error:
                self._end()
                raise WorldFailedError("the world ended before the command did") from error
            finally:
                os.close(self._pidfd)

    def wait_until_gone(self) -> None:
        """After `run`, if nothing was left running: wait until no process and no mount of it is
        left, except the copy of its view."""
        self._reap()

    def close(self) -> None:
        """End it without a command."""
        self.drop_view()
        self._orders.close()
        self._end_keeper()
        os.close(self._pidfd)
        self._end()
        if self._sandbox.network is not None:
            self._sandbox.network.finish()

    def drop_view(self) -> None:
        if self.view >= 0:
            os.close(self.view)
            self.view = -1

    def _prepare(self, prepare: Callable[[], None]) -> None:
        try:
            prepare()
        except BaseException:
            self._orders.close()
            self._end_keeper()
            self._end()
            raise

    def _send(self, program: spawn.Program) -> None:
        wanted = {target: fd for target, fd in enumerate(program.stdio) if fd is not None}
        env = dict(program.env or {})
        cwd = os.fsencode(program.cwd or b".")
        # If the process has ended, it has reported why, and `_failure` reads that.
        with suppress(ClosedError):
            self._orders.send(
                "program", program.argv, cwd, env, umask.current(), signals.ignored(),
                signals.caller.mask, tuple(wanted),
                tuple(os.path.join(self._sandbox.root, name) for name in self.absent),
                fds=tuple(wanted.values()),
            )  # fmt: skip

    def _failure(self, program: spawn.Program) -> Finished | None:
        """How the start failed, if it did: in a shell's terms, or as an error of ours."""
        said = self._orders.rest()  # exec closes the other end
        self._orders.close()
        self._end_keeper()
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

    def _end_keeper(self) -> None:
        if self._keeper >= 0:
            with suppress(OSError):  # ignore any error: the command has begun, and we wait for it
                signal.pidfd_send_signal(self._keeper, signal.SIGKILL)
            os.close(self._keeper)
            self._keeper = -1

    def _attend(self, limits: Limits, started: int, ended_mark: bytes) -> Ended:
        command = Attended(self.init_pid, self._channel, self._door, self._pidfd, limits, started)
        if self.absent:
            command.later = self._tell_absent
        is_lost = False
        try:
            status, left, where = command.wait()
        except ClosedError:  # the init was killed, perhaps by the OOM killer, and all with it
            status, left, where = signal.SIGKILL, 0, ()
            if self._sandbox.company is not None:
                # It was not the first of its pid namespace. Which processes there were the
                # command's is now unknown: the world counts as running until all have ended.
                space = self._sandbox.company.space
                is_lost, left, where = True, 1, (space.user_ns, space.pid_ns)
        killed = 0
        if left and not is_lost and (limits.kill_children or command.timed_out):
            killed = command.end_leftovers()
            left = 0
        tokens = ("", "")
        if left:
            self._door.close()
            tokens = self._keep(ended_mark)
        else:
            self._end()
        duration = clock.monotonic_ns() - started
        spaces = cast("tuple[int, int]", where) if left else None
        finished = command.finished(status, duration, killed)
        return Ended(finished, left, self.init_pid, spaces, *tokens)

    def _tell_absent(self) -> None:
        with suppress(ClosedError):  # it has just ended, and has reported that before
            self._channel.send("absent", self._sandbox.root, self.absent)

    def _keep(self, ended_mark: bytes) -> tuple[str, str]:
        """Processes keep running: the init stays with them, holds locks for them, and marks the
        end of the last one. Returns the tokens of the locks."""
        if not ended_mark:
            with suppress(ClosedError):
                self._channel.send("keep")
            self._channel.close()
            return "", ""
        mark = os.open(ended_mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        place = Path(os.fsdecode(ended_mark)).parents[2]
        locks = (alive.handle(place), alive.handle(place))
        with suppress(ClosedError):
            self._channel.send("keep", fds=(mark, *(one.fd for one in locks if one.token)))
        os.close(mark)
        for one in locks:
            one.close()
        self._channel.close()
        return locks[0].token, locks[1].token

    def _end(self) -> None:
        """Close the channel, which makes the init exit; once it is reaped no mount is left.

        Nothing runs in the world any more, so the layer can be read before that.
        """
        self._door.close()
        self._channel.close()
        deferred_work.do(self._reap)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            os.waitpid(self.init_pid, 0)


def open_world(sandbox: Sandbox, meanwhile: Iterator[object] | None = None) -> OpenWorld:
    """Make the namespaces and mounts, up to the point where only the command is missing.

    `meanwhile` does a piece of other work at each step, while other processes make the world.
    Raises `WorldFailedError` with the step that the system refused.
    """
    if sandbox.network is not None:
        sandbox.network.before_fork()
    ours, theirs = channels.pair()
    # The maker ends once the init exists; the init must then be our child.
    process_tree.adopt_orphans(True)
    with Signals() as mask:
        try:

            def make() -> None:
                # The world ends when this is closed, so the maker must not hold it open.
                ours.close()
                _make(sandbox, theirs, mask)

            maker = fork_child(make)
            theirs.close()
            opened = OpenWorld(sandbox, ours, _await_ready(ours, maker, meanwhile))
            if sandbox.network is not None:
                try:
                    sandbox.network.parent(opened.pids[1], ())
                except BaseException:
                    opened.close()
                    raise
            return opened
        finally:
            process_tree.adopt_orphans(False)


def _make(sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> NoReturn:
    """In the maker: make the world, then its init, then end."""
    try:
        sandboxes.enter(sandbox, channel)
        if sandbox.company is not None:  # from its first moment other processes can see the init
            privileges.hide_from_tracers()
        pid = fork_child(lambda: world_init.live(sandbox, channel, mask))
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


def _await_ready(channel: Channel, maker: int, meanwhile: Iterator[object] | None) -> _Ready:
    init_pid, door, view, given = 0, -1, -1, cast("tuple[int, ...]", ())
    try:
        while not (init_pid and given):
            if meanwhile is not None and not channel.ready():
                next(meanwhile, None)
            message, fds = channel.receive()
            if message[0] == "map":
                namespaces.map_every_id(maker)
                channel.send("go")
            elif message[0] == "init":
                init_pid = cast(int, message[1])
            elif message[0] == "door":
                door = fds[0]
            elif message[0] == "view":
                view = fds[0]
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
    orders, pidfd, *keeper = given
    return _Ready(init_pid, pidfd, Channel(orders), door, *keeper)._replace(view=view)


def _words(error: ClosedError | OSError) -> str:
    return str(error) if isinstance(error, OSError) else "its maker ended early"
