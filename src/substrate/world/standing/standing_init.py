"""The first process of a standing world: it starts one program, reaps, and reports.

Like `world_init`, but its program (a shell) keeps running while the view around it changes. When
the process at the other end of the channel is gone, the world ends with all that runs in it.

    receives: program, keep
    reports:  ready, started (with a pidfd) or not_started, stopped, ended
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import NoReturn, cast

from substrate.system.linux import privileges
from substrate.system.process import Channel, ClosedError, Stdio, fork_child, spawn
from substrate.world.process import (
    TICK_S,
    Children,
    Sandbox,
    SetupError,
    is_privileged,
    mount_proc,
    others,
    tiers,
    world_init,
)


def live(sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> NoReturn:
    """Be the world's init until the world ends."""
    try:
        _Init(sandbox, channel, mask).run()
    except ClosedError:
        pass
    finally:  # never return into a second copy of the caller's code
        os._exit(0)


class _Init:
    def __init__(self, sandbox: Sandbox, channel: Channel, mask: Iterable[int]) -> None:
        self._sandbox = sandbox
        self._channel = channel
        self._mask = mask
        self._program = 0
        self._children = Children(channel)

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
            status = self._children.wait_for(self._program)
            self._channel.send("ended", status, self._children.settle(others))
        message, _ = self._channel.receive()
        while message[0] == "absent":  # too late for that
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
        become = partial(_become, self._sandbox, program, cast(int, umask), self._mask, tell)
        self._program = fork_child(become)
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
        self._children.let_go()
        return True

    def _outlive(self) -> None:
        """Reap until nothing is left; no process waits for us any more."""
        self._channel.close()
        self._children.reap()
        while others():
            self._children.reap_next(TICK_S)


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
        world_init.reopen_inside()
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
    finally:  # in every case: never return into a second copy of the caller's code
        with suppress(OSError):
            os.write(tell, step.encode() + b"\0%d" % number)
        os._exit(127)
