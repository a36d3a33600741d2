"""One command's network, as a world uses it: hooks around fork and exec, then an account.

before_fork   a socket pair, and everything the child must not have to make itself
in_child      the namespace if one is asked for, then the filter; both handed to the other side
parent        a thread that supervises
finish        what was used, what was refused, and what could not be seen
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

from substrate.errors import SubstrateError
from substrate.system.linux import Handover, Listener, seccomp_passthrough
from substrate.system.process import rlimit_check
from substrate.world.network.enclosure import Enclosure, EventLoop, make_sockets
from substrate.world.network.observe import MOST_SCOPES, Names, ScopeLog, Supervisor
from substrate.world.network.rules import Policy
from substrate.world.process import Refused, RefusedWrites

_MOST_DESCRIPTORS = 250
#: Only a supervisor with a bug takes this long; the command's record must not wait for it.
_SETTLE_TIMEOUT_S = 5.0


class CommandNetwork:
    """Implements `interface.Network`. For one command only."""

    def __init__(self, policy: Policy, *, no_new_privs: bool = False) -> None:
        """`no_new_privs` lets a process without CAP_SYS_ADMIN be watched; then sudo fails in it."""
        self._policy = policy
        self._no_new_privs = no_new_privs
        self._log = ScopeLog()
        self._names = Names()
        self._handover: Handover | None = None
        self._ours: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loop: EventLoop | None = None
        self._supervisor: Supervisor | None = None
        self._listener: Listener | None = None
        self._started = threading.Event()
        self._settled = threading.Event()
        self._unseen = ""
        self._outlives = False
        self._abstract: frozenset[str] = frozenset()
        self._writes: RefusedWrites | None = None

    @property
    def mode(self) -> str:
        return self._policy.text

    @property
    def denied(self) -> tuple[str, ...]:
        """What was refused, as scopes, and ``dns:name`` for a name that was not resolved."""
        return self._log.denials()

    @property
    def failed(self) -> tuple[str, ...]:
        """What it was allowed to reach, but did not."""
        return self._log.failures()

    @property
    def notice(self) -> str:
        """What the account cannot promise; empty if it is complete."""
        if self._unseen:
            return f"the network was not watched: {self._unseen}"
        if self._loop is not None and self._loop.failure:
            return f"watching the network met an error: {self._loop.failure}"
        if self._log.unread:
            return f"{self._log.unread} network calls could not be read"
        if self._log.full:
            return f"only the first {MOST_SCOPES} destinations are listed"
        return ""

    @property
    def passed_nothing(self) -> bool:
        """Decided by counting the calls, which wait for us; their contents could be forged."""
        if self._unseen or self._loop is None or self._loop.failure:
            return False
        return self._supervisor is not None and not self._supervisor.messages

    def refuse_abstract(self, names: tuple[bytes, ...]) -> None:
        self._abstract = frozenset("@" + name.decode("utf-8", "surrogateescape") for name in names)

    def watch_writes(self) -> None:
        self._writes = RefusedWrites()

    @property
    def refused_writes(self) -> tuple[Refused, ...]:
        return self._writes.refused() if self._writes is not None else ()

    @property
    def writes_notice(self) -> str:
        """Why the list of refused writes may be incomplete; empty if complete, or not made."""
        if self._writes is None:
            return ""
        if self._unseen or (self._loop is not None and self._loop.failure):
            return self.notice.replace("the network was not watched", "writes were not watched")
        return self._writes.notice

    def before_fork(self) -> None:
        """May be called again if the fork could not be made."""
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._handover = Handover(
                self._theirs.fileno(),
                no_vsock=self._policy.encloses,
                writes=self._writes is not None,
            )
        except SubstrateError as error:
            self._unseen = error.message

    def in_child(self) -> None:
        """Raises `OSError` if the requested namespace is not available: then nothing may run."""
        if self._theirs is None:
            raise AssertionError("before_fork comes first")
        if self._policy.encloses:
            made = make_sockets(self._policy)
            socket.send_fds(self._theirs, [b"S"], [each.fileno() for each in made])
            for each in made:
                each.close()
        if self._handover is not None:
            try:
                self._handover.install(no_new_privs=self._no_new_privs)
            except OSError as error:
                with suppress(OSError):
                    self._theirs.send(b"E" + str(error.strerror).encode("utf-8", "replace"))
        self._theirs.close()

    def parent(self, child_pid: int, fds: tuple[int, ...] = ()) -> None:
        """Starts the supervisor. The command may be running already: its first call waits."""
        if self._theirs is None:
            raise AssertionError("before_fork comes first")
        self._theirs.close()
        self._loop = EventLoop()
        thread = threading.Thread(
            target=self._supervise, args=(self._loop, child_pid), daemon=True, name="network"
        )
        rlimit_check.start(thread)
        self._thread = thread

    def take(self) -> tuple[str, ...]:
        """What was used since the last call: one line of a shell has ended."""
        loop, supervisor = self._loop, self._supervisor
        if loop is None or supervisor is None or self._thread is None:
            return ()
        settled = threading.Event()

        def settle() -> None:
            supervisor.settle(is_over=False)
            settled.set()

        if self._thread.is_alive():
            loop.call_soon(settle)
            settled.wait(_SETTLE_TIMEOUT_S)
        return self._log.take()

    def finish(self) -> tuple[str, ...]:
        """The command has ended: what it used. Processes that it left keep their network."""
        if self._ours is None or self._loop is None or self._thread is None:
            return ()
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)  # a child that never reached exec
        self._started.wait(_SETTLE_TIMEOUT_S)

        def settle() -> None:
            if self._supervisor is not None:
                self._supervisor.settle()
            if self._listener is not None and not self._nobody_left():
                if self._policy.encloses:
                    self._outlives = True  # the processes left have no other way out
                else:
                    seccomp_passthrough.hand_over(self._listener.descriptor)
            if self._loop is not None and not self._outlives:
                self._loop.stop()
            self._settled.set()

        self._loop.call_soon(settle)
        self._settled.wait(_SETTLE_TIMEOUT_S)
        if not self._outlives:
            self._thread.join(_SETTLE_TIMEOUT_S)  # the caller may want to fork
        return self._log.scopes()

    def _nobody_left(self) -> bool:
        if self._listener is None:
            return True
        waiting = select.poll()
        waiting.register(self._listener.descriptor, 0)
        return any(events & select.POLLHUP for _, events in waiting.poll(0))

    def _supervise(self, loop: EventLoop, command: int) -> None:
        """The thread: take what the child hands over, then look at its calls."""
        enclosure = None
        try:
            sockets = self._receive()
            if self._policy.encloses:
                enclosure = Enclosure(loop, self._policy, self._log, sockets)
            if self._listener is not None:
                self._supervisor = Supervisor(
                    loop, self._listener, self._log, self._names, command, enclosure,
                    abstract=self._abstract, writes=self._writes,
                )  # fmt: skip
            self._started.set()
            if self._supervisor is not None or enclosure is not None:
                loop.run()
            if self._supervisor is not None:
                self._supervisor.settle()
        except Exception as error:  # noqa: BLE001 - the command goes on; the account says so
            self._unseen = f"{type(error).__name__}: {error}"
            if self._listener is not None:
                seccomp_passthrough.hand_over(self._listener.descriptor)
        finally:
            self._started.set()
            self._settled.set()
            if self._supervisor is not None:
                self._supervisor.close()
            elif self._listener is not None:
                self._listener.close()
            if enclosure is not None:
                enclosure.close()
            loop.close()

    def _receive(self) -> list[socket.socket]:
        """Until the listener came, or the child said why there is none, or started its program."""
        sockets: list[socket.socket] = []
        ours = self._ours
        while ours is not None:
            message, descriptors, _, _ = socket.recv_fds(ours, 256, _MOST_DESCRIPTORS)
            if message == b"L" and descriptors:
                self._listener = Listener(descriptors[0])
                break
            sockets += [socket.socket(fileno=each) for each in descriptors]
            if message.startswith(b"E"):
                self._unseen = message[1:].decode("utf-8", "replace")
                break
            if not message:
                break
        if ours is not None:
            ours.close()
        return sockets
