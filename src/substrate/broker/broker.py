"""Answers calls of `substrate` from inside one world. It runs outside and trusts no caller.

The process that waits for the command starts the broker when the first call comes, and ends it
with the command. Each call is handled in its own process, so no call can delay another. The
results that must be kept (a requested undo, a command that began) come back over a channel.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, cast

from substrate.broker import answer_call
from substrate.broker.answer_call import Answer, Begun, State
from substrate.recorder.command import Scene, UndoWish
from substrate.system import daemon_paths
from substrate.system.linux import process_name
from substrate.system.process import Channel, ClosedError, deferred_work, fork_child, process_tree
from substrate.system.process import fd_channel as channels

#: Calls handled at the same time; the others wait in the socket's queue.
MOST_AT_ONCE = 8
#: How long calls under way may take after the command has ended.
_GRACE_S = 2.0
#: closerange costs nothing for descriptors that are not there.
_MOST_FDS = 1 << 20
#: More than any reasonable depth of a process tree.
_MOST_GENERATIONS = 1000


def serve(
    listener: int, control: Channel, init_pid: int, scene: Scene, load: Callable[[], Answer]
) -> NoReturn:
    """Be the broker. Called right after the fork."""
    try:
        _leave_the_waiting_process(listener, control.fileno())
        _Server(listener, control, init_pid, scene, load()).run()
    finally:  # in every case: never return into a second copy of the caller's code
        os._exit(0)


def _leave_the_waiting_process(*kept: int) -> None:
    """Give up what we inherited from the waiting process: its descriptors and its signals."""
    from substrate.trace import writer

    os.setpgid(0, 0)  # the terminal's keys are for the command
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):
            if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
                signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    low = 3
    for fd in (*sorted(kept), _MOST_FDS):
        os.closerange(low, fd)
        low = fd + 1
    os.chdir("/")
    process_name.call_ourselves(b"substrate-broker")
    writer.watchers.clear()
    deferred_work.forget()


class _Server:
    def __init__(
        self, listener: int, control: Channel, init_pid: int, scene: Scene, answer: Answer
    ) -> None:
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, listener)
        self._listener.setblocking(False)
        self._control = control
        self._init_pid = init_pid
        self._scene = scene
        self._answer = answer
        self._state = State()
        #: Calls under way: the process, by the descriptor of the channel to it.
        self._calls: dict[int, tuple[int, Channel]] = {}

    def run(self) -> None:
        while True:
            others = [self._control.fileno()]
            if len(self._calls) < MOST_AT_ONCE:
                others.append(self._listener.fileno())
            ready = self._wait(others, None)
            # Results come first: the next call may depend on them.
            for fd in ready & set(self._calls):
                self._hear(fd)
            if self._control.fileno() in ready:
                break
            if self._listener.fileno() in ready:
                self._accept()
        self._listener.close()
        self._finish()

    def _finish(self) -> None:
        """The command has ended. Calls still under way come from processes that outlive it."""
        while self._calls and (ready := self._wait([], _GRACE_S)):
            for fd in ready:
                self._hear(fd)
        for pid, _ in self._calls.values():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        spans = answer_call.close_all(self._scene, self._state)
        with suppress(ClosedError):
            self._control.send("asked", [tuple(wish) for wish in self._state.undos], spans)

    def _wait(self, others: list[int], timeout_s: float | None) -> set[int]:
        """Which of the calls under way, and of `others`, are readable."""
        poll = select.poll()
        for fd in (*self._calls, *others):
            poll.register(fd, select.POLLIN)
        found = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return {fd for fd, _ in found}

    def _hear(self, fd: int) -> None:
        pid, channel = self._calls[fd]
        try:
            message, _ = channel.receive()
        except ClosedError:
            channel.close()
            del self._calls[fd]
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            return
        if message[0] == "undo":
            self._state.undos.append(UndoWish(*cast("tuple[str]", message[1])))
        elif message[0] == "checkpoint":
            self._state.checkpoints += 1
        elif message[0] == "begun":
            self._state.add(Begun(*cast("tuple[str]", message[1])))  # type: ignore[call-arg]
        elif message[0] == "ended":
            self._state.end(cast(str, message[1]))

    def _accept(self) -> None:
        try:
            connection, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        call = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, connection)
        try:
            if not _is_from(call, self._init_pid):
                return
            ours, theirs = channels.pair()

            def handle() -> None:
                self._listener.close()
                ours.close()
                answer_call.handle(call, theirs, self._scene, self._state, self._answer)

            pid = fork_child(handle)
            theirs.close()
            self._calls[ours.fileno()] = (pid, ours)
        finally:
            call.close()


def _is_from(call: _socket.socket, init_pid: int) -> bool:
    """Whether the caller belongs to our user and descends from the init of this world.

    A process whose parent has ended is a child of the init, so this finds all descendants.
    """
    pid, uid, _ = daemon_paths.peer(call)
    if uid != os.geteuid():
        return False
    for _ in range(_MOST_GENERATIONS):
        if pid == init_pid:
            return True
        if pid <= 1:
            return False
        pid = process_tree.parent(pid)
    return False
