"""The first process of a world: it forks the command's process, reaps orphans, and reports.

It talks to the process that waits for the command over a channel. When that process is gone,
the world ends: the kernel kills everything in a pid namespace whose first process exits. In the
pid namespace of an earlier command (`Sandbox.company`) it is not the first: then it kills only
what its own command started.

    receives: absent ROOT NAMES (see `Absent`), keep
    reports:  ready (with a pidfd, and the channel on which the command's process waits for its
              program), stopped, ended

The command's process exists before its program is known, and has taken on every restriction
that does not depend on it: a world made ahead needs only one write to start its command.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NoReturn, cast

from substrate.system import environment
from substrate.system.linux import memory, privileges, process_name
from substrate.system.process import (
    Channel,
    ClosedError,
    Stdio,
    fork_child,
    process_tree,
    signals,
    spawn,
)
from substrate.system.process import fd_channel as channels
from substrate.system.terminal import standard_streams
from substrate.world.process import limits, pid_space, tiers
from substrate.world.process.hide_git_locks import take_out
from substrate.world.process.init_reaper import PAUSE_S, TICK_S, Children, others
from substrate.world.process.sandbox import Sandbox, SetupError, is_privileged, mount_proc

#: Other processes see this name, not the command's words, which they may search for.
NAME = b"substrate-init"
#: What the command's process writes right before it becomes the command.
ATTEMPT = b"!"


def live(sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> NoReturn:
    """Be the world's init until the world ends."""
    try:
        init = _Init(sandbox, channel, mask)
        try:
            init.run()
            os._exit(0)
        except ClosedError:
            if sandbox.company is not None:
                init.end_all()
    finally:  # never return into a second copy of the caller's code
        os._exit(1)


class _Init:
    def __init__(self, sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> None:
        self.sandbox = sandbox
        self.channel = channel
        self.mask = mask
        self.command = 0
        #: See `memory.start_keeper`; the process that waits for the command ends it. 0: none.
        self.keeper = 0
        self.children = Children(channel)

    def run(self) -> None:
        try:
            mount_proc()
            privileges.hide_from_tracers()
            if self.sandbox.company is not None:
                process_tree.adopt_orphans(True)
            self._fork_command()
            if self.sandbox.company is not None:
                process_name.call_ourselves(NAME)
            if self.sandbox.is_ahead:
                self._rehearse_end()
        except (SetupError, OSError) as error:
            self.channel.send("failed", str(error))
            return
        status = self.children.wait_for(self.command)
        left = self.children.settle(self._left)
        self.channel.send("ended", status, left, pid_space.own_namespaces() if left else ())
        if left:
            message, fds = self.channel.receive()
            while message[0] == "absent":  # too late for that
                message, fds = self.channel.receive()
            if message[0] == "keep":
                self._outlive(fds)

    def _fork_command(self) -> None:
        theirs, ours = channels.pair()
        given, taken = channels.pair()

        def become() -> None:
            for channel in (theirs, ours, given):
                channel.close()
            _become(self.sandbox, self.mask, taken)

        self.command = fork_child(become)
        taken.close()
        self.keeper = cast(int, given.receive()[0][1])
        given.send("orders", fds=(ours.fileno(),))
        # From here on we need no capability; the command's process sets its own. The exception is
        # `kill`: to end processes of another user, where the kernel does not do that.
        privileges.drop_own_capabilities(() if self.sandbox.company is None else ("kill",))
        handles = [os.pidfd_open(pid) for pid in (self.command, self.keeper) if pid]
        self.channel.send("ready", fds=(theirs.fileno(), *handles))
        self.children.let_go()

    def _rehearse_end(self) -> None:
        """As `_rehearse`, for what is done when the command has ended."""
        self.children.rehearse()
        self._left()
        told, tell = channels.pair()
        tell.send("ended", 0, 0, ())
        told.close()
        tell.close()

    def _left(self) -> int:
        """How many processes that the command started are still running."""
        if not _has_children():
            return 0
        found = process_tree.descendants(os.getpid())
        return sum(one.pid != self.keeper for one in found)

    def _outlive(self, marks: tuple[int, ...]) -> None:
        """Reap until nothing is left; no process waits for us any more.

        The first process of a pid namespace stays for the commands that joined it.
        """
        self.channel.close()
        process_name.call_ourselves(NAME)
        self.children.reap()
        while (left := self._left()) or (os.getpid() == 1 and others()):
            if not left:
                marks = _leave(marks)
            self.children.reap_next(TICK_S)
        _leave(marks)

    def end_all(self) -> None:
        """End all that the command started, in any state; new processes may still appear."""
        while _has_children():
            process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)
            self.children.reap_next(PAUSE_S)


def _become(sandbox: Sandbox, mask: Iterable[int], init: Channel) -> NoReturn:
    """In the command's process: take on the restrictions, wait for the program, and become it.

    The other end first gets `ATTEMPT`; then ``step NUL errno`` means failure, and the channel's end
    means success. Without `ATTEMPT`, we were killed too early.
    """
    step, number = "start", errno.EINVAL
    orders = init
    try:
        orders = _take_orders(sandbox, init)
        _rehearse()
        step = "network"
        if sandbox.network is not None:
            sandbox.network.in_child()
        step = "limits"
        limits.apply_resources(sandbox.resources)
        step = "privileges"
        tiers.restrict_process(sandbox, privileged=is_privileged())
        step = "start"
        spawn.restore_dispositions()  # pending signals stay blocked until the mask is lifted
        step = "descriptors"
        close_ways_out()
        step = "start"
        program, umask, ignored, callers_mask, absent = _receive_program(orders)
        spawn.move_stdio(program.stdio)
        os.umask(umask)
        signals.ignore(ignored)  # a world made ahead did not inherit them from its caller
        step = "cwd"
        assert program.cwd is not None
        os.chdir(program.cwd)
        take_out(sandbox.root, absent)
        step = "descriptors"
        reopen_inside()
        assert program.env is not None
        env = _encoded(program.env)
        step = "exec"
        spawn.restore_mask(mask if callers_mask is None else callers_mask)
        # Not `send`: the network's filter would report it, and there may be no supervisor yet.
        os.write(orders.fileno(), ATTEMPT)
        standard_streams.close_absent(program.stdio)
        spawn.exec_first(program.argv, env)
    except ClosedError:  # there will be no program
        os._exit(0)
    except OSError as error:
        number = error.errno or errno.EINVAL
    finally:  # in every case: never return into a second copy of the caller's code
        with suppress(OSError):
            os.write(orders.fileno(), step.encode() + b"\0%d" % number)
        os._exit(127)


def _take_orders(sandbox: Sandbox, init: Channel) -> Channel:
    """The channel on which the program comes. The keeper has copies of what we have open now. With
    a copy of this channel, its end would not show that the program has begun."""
    init.send("keeper", memory.start_keeper() if sandbox.is_ahead else 0)
    _, (fd,) = init.receive()
    init.close()
    return Channel(fd)


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def _rehearse() -> None:
    """Do the steps of the start once in advance, while no caller waits: memory that we still share
    is copied when it is first used. Before the network's filter, which would report them."""
    told, tell = channels.pair()
    tell.send("program", (b"",), b"/", dict(environment.current().variables), 0, (), (), (), ())
    program, *_ = _receive_program(told)
    told.close()
    tell.close()
    spawn.move_stdio(program.stdio)
    reopen_inside()
    with suppress(OSError):
        spawn.exec_first(program.argv, _encoded(program.env or {}))


def _receive_program(
    orders: Channel,
) -> tuple[spawn.Program, int, tuple[int, ...], tuple[int, ...] | None, tuple[bytes, ...]]:
    """With the umask, the signals that it must ignore, those to block (None: as we were), and
    the paths to look for."""
    message, fds = orders.receive()
    _, argv, cwd, env, umask, ignored, blocked, targets, absent = message
    given = dict(zip(cast("tuple[int, ...]", targets), fds, strict=True))
    program = spawn.Program(
        cast("tuple[bytes, ...]", argv), cast(bytes, cwd), cast("dict[str, str]", env),
        Stdio(given.get(0), given.get(1), given.get(2)),
    )  # fmt: skip
    return (
        program, cast(int, umask), cast("tuple[int, ...]", ignored),
        cast("tuple[int, ...] | None", blocked), cast("tuple[bytes, ...]", absent),
    )  # fmt: skip


def close_ways_out() -> None:
    """A descriptor of a directory was opened outside: the real files could be reached from it.

    All but the first three, which are not the command's own yet: see `reopen_inside`.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and _is_directory(fd) and os.get_inheritable(fd):
            os.close(fd)


def reopen_inside() -> None:
    """Open a directory that is stdin (``cmd < .``) again, inside the world."""
    for fd in range(3):
        if not _is_directory(fd):
            continue
        try:
            inside = os.open(os.readlink(f"/proc/self/fd/{fd}"), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            inside = os.open(os.devnull, os.O_RDWR)
        os.dup2(inside, fd, inheritable=True)
        os.close(inside)


def _is_directory(fd: int) -> bool:
    try:
        return stat.S_ISDIR(os.fstat(fd).st_mode)
    except OSError:  # closed; or the descriptor that listed the directory
        return False


def _has_children() -> bool:
    """Orphans become our children, so without a child no process is left."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _leave(marks: tuple[int, ...]) -> tuple[int, ...]:
    """Show that nothing of this world runs any more: in the mark, and by freeing the first lock.

    The second lock is for commands that share the pid namespace: it is freed when this process
    ends.
    """
    for fd in marks[:1]:
        os.write(fd, b"1")
    for fd in marks[:2]:
        os.close(fd)
    return ()
