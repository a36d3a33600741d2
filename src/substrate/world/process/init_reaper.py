"""The children of a world's first process, which reaps them and reports the one that counts."""

from __future__ import annotations

import itertools
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from substrate.system import clock
from substrate.system.process import Channel, ClosedError
from substrate.world.process.hide_git_locks import Absent

#: A process that is about to end does not count as "left running".
_SETTLE_S = 0.1
PAUSE_S = 0.01
#: A process in the namespace may not be a child of ours, so look once in a while.
TICK_S = 5.0
#: closerange costs nothing for descriptors that are not there.
_MOST_FDS = 1 << 20


class Children:
    """Waits for them, and for the end of the process at the other end of `channel`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._absent: Absent | None = None
        #: Reaped, and not yet reported.
        self._reaped: list[tuple[int, int]] = []
        #: A pipe that becomes readable when a child changes its state.
        self._news, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Only SIGCHLD may interrupt us; the terminal's keys are for the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def let_go(self) -> None:
        """Close what we share with the children: a process that waits for the end of a pipe or of a
        terminal would otherwise wait for us, too."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in range(3):
            os.dup2(null, fd, inheritable=False)
        needed = sorted({2, self._channel.fileno(), self._news, self._bell})
        for low, high in itertools.pairwise((*needed, _MOST_FDS)):
            os.closerange(low + 1, high)

    def rehearse(self) -> None:
        """Go through the handling of a child's end once, without one; the command may have got its
        program and ended in between."""
        os.kill(os.getpid(), signal.SIGCHLD)
        self._pause(0.0)
        self._reaped += self.reap()

    def wait_for(self, wanted: int) -> int:
        """The wait status of one of them; each time it stops, report that over the channel."""
        while True:
            found, self._reaped = [*self._reaped, *self.reap()], []
            for pid, status in found:
                if pid != wanted:
                    continue
                if not os.WIFSTOPPED(status):
                    return status
                self._channel.send("stopped")
            self._pause(None)

    def settle(self, left: Callable[[], int]) -> int:
        """How many are `left`, once those about to end have ended."""
        deadline = clock.monotonic_ns() + int(_SETTLE_S * 1e9)
        while count := left():
            if clock.monotonic_ns() >= deadline:
                break
            self._pause(PAUSE_S)
            self.reap()
        return count

    def reap(self) -> list[tuple[int, int]]:
        found = []
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                found.append((pid, status))
        return found

    def reap_next(self, timeout_s: float) -> None:
        """Wait so long for a change, without looking at the channel, and reap."""
        select.select([self._news], [], [], timeout_s)
        self._drain()
        self.reap()

    def _pause(self, timeout_s: float | None) -> None:
        """Until a child changes its state; `ClosedError` if the waiting process has ended."""
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        poll.register(self._channel.fileno(), select.POLLIN)
        if self._absent is not None and self._absent.fd >= 0:
            poll.register(self._absent.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._absent is not None and self._absent.fd in ready:
            self._absent.look_again()
        if self._channel.fileno() in ready:
            self._listen()
        self._drain()

    def _listen(self) -> None:
        message, _ = self._channel.receive()
        if message[0] != "absent":
            raise ClosedError  # no other message can come now
        if self._absent is not None:  # a shell's next line
            self._absent.close()
        root, names = cast("tuple[bytes, tuple[bytes, ...]]", message[1:])
        self._absent = Absent(root, names)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._news, 512):
                pass


def others() -> int:
    """How many other processes are in our pid namespace, whose first process we are."""
    return sum(name.isdigit() and name != "1" for name in os.listdir("/proc"))
