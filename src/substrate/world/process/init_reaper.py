"""The children of a world's first process, which reaps them and tells of the one that counts."""

from __future__ import annotations

import itertools
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from substrate.system import clock
from substrate.system.channel import Channel, ClosedError
from substrate.world.absent import Absent

#: What is only just about to end is not "left running".
_SETTLE_S = 0.1
PAUSE_S = 0.01
#: Something in the namespace may be nobody's child of ours; look once in a while.
TICK_S = 5.0
#: closerange costs nothing for descriptors that are not there.
_MOST_FDS = 1 << 20


class Children:
    """Waits for them, and for the end of who is at the other end of `channel`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._absent: Absent | None = None
        #: Reaped, and not told of yet.
        self._reaped: list[tuple[int, int]] = []
        #: A pipe that becomes readable when a child changes its state.
        self._news, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Only SIGCHLD may interrupt us; the keys of the terminal are the command's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def let_go(self) -> None:
        """Whoever waits for the end of a pipe that a child has, or of its terminal, would wait for
        us, too."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in range(3):
            os.dup2(null, fd, inheritable=False)
        needed = sorted({2, self._channel.fileno(), self._news, self._bell})
        for low, high in itertools.pairwise((*needed, _MOST_FDS)):
            os.closerange(low + 1, high)

    def rehearse(self) -> None:
        """Hear of a child, of which there is nothing to be told; unless the command has got its
        program meanwhile, and has ended."""
        os.kill(os.getpid(), signal.SIGCHLD)
        self._pause(0.0)
        self._reaped += self.reap()

    def wait_for(self, wanted: int) -> int:
        """The wait status of one of them; each time it stops the other end is told."""
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
        """Wait for a change for so long, whoever may be at the other end, and reap."""
        select.select([self._news], [], [], timeout_s)
        self._drain()
        self.reap()

    def _pause(self, timeout_s: float | None) -> None:
        """Until a child changes its state; `ClosedError` if the waiting process went away."""
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
            raise ClosedError  # it has nothing else to say now
        if self._absent is not None:  # a shell's next line
            self._absent.close()
        root, names = cast("tuple[bytes, tuple[bytes, ...]]", message[1:])
        self._absent = Absent(root, names)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._news, 512):
                pass


def others() -> int:
    """How many others are in our pid namespace, of which we are the first."""
    return sum(name.isdigit() and name != "1" for name in os.listdir("/proc"))
