"""The daemon's process that watches workspaces: it sleeps and answers; children do the work.

A workspace is watched from the first command that the daemon ran there. Setting up, scanning and
recording happen in niced children, one at a time. This process only empties the kernel's queues
and answers recorders (`system/watcher_client.py`), so an answer takes a fraction of a
millisecond.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket

from substrate.daemon.server import caller_identity
from substrate.daemon.watcher.watched_workspace import Watched
from substrate.system import clock, watcher_client

MOST_WORKSPACES = 16
_MOST_CONNECTIONS = 64
_NICENESS = 5
_LONGEST_QUESTION = 16 * 1024
_LONGEST_SLEEP_NS = 600 * 1_000_000_000


class Watcher:
    def __init__(
        self, listener: socket.socket, daemon_pid: int, idle_work_s: float, *, watches: bool
    ) -> None:
        self._listener = listener
        self._daemon_pid = daemon_pid
        self._idle_work_s = idle_work_s
        self._watches = watches
        self._standing = caller_identity.standing(os.getpid())
        self._workspaces: dict[bytes, Watched] = {}
        #: The connections, and the workspace that each asked about.
        self._connections: dict[int, tuple[socket.socket, bytes]] = {}
        #: Those of them that wait for an event there.
        self._waiting: set[int] = set()

    def run(self) -> None:
        """Run until the daemon ends, or ends us."""
        from substrate.system.linux import syscalls

        syscalls.call("prctl", 1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
        os.nice(_NICENESS)
        while os.getppid() == self._daemon_pid:
            self._look(self._ready())
            self._work()

    def _ready(self) -> set[int]:
        poll = select.poll()
        fds = [self._listener.fileno(), *self._connections]
        for one in self._workspaces.values():
            events = one.fileno()
            fds += [] if events is None else [events]
            fds += [] if one.job is None else [one.job.fileno()]
            still = one.stillness.fileno()
            fds += [] if still is None else [still]
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(self._patience_ms())}

    def _patience_ms(self) -> int:
        is_busy = any(one.job is not None for one in self._workspaces.values())
        due = [
            at for one in self._workspaces.values()
            if (at := one.due_ns()) is not None and not (is_busy and at <= clock.monotonic_ns())
        ]  # fmt: skip
        left_ns = min(due, default=clock.monotonic_ns() + _LONGEST_SLEEP_NS) - clock.monotonic_ns()
        return max(1, min(left_ns, _LONGEST_SLEEP_NS) // 1_000_000 + 1)

    def _look(self, ready: set[int]) -> None:
        for fd in ready & self._connections.keys():
            self._hear(*self._connections[fd])
        if self._listener.fileno() in ready:
            self._accept()
        for one in self._workspaces.values():
            if one.fileno() in ready:
                one.read()
            is_to_read = one.stillness.fileno() in ready or one.stillness.is_overdue
            if is_to_read and one.stillness.read():
                self._tell(one.root)
            if one.job is not None and one.job.fileno() in ready:
                news = one.news
                one.job_ended()
                if one.news != news:
                    # There is activity in the workspace: the daemon must not consider itself idle.
                    os.kill(self._daemon_pid, signal.SIGUSR1)

    def _work(self) -> None:
        """Start one job at a time, and forget workspaces that are no longer used."""
        for root in [root for root, one in self._workspaces.items() if one.is_forgotten]:
            self._forget(root)
        if not any(one.job is not None for one in self._workspaces.values()):
            for one in self._workspaces.values():
                if one.work():
                    break
        for one in self._workspaces.values():
            self._log(one.words)
            one.words.clear()

    # -- questions ------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if len(self._connections) >= _MOST_CONNECTIONS or not self._is_trusted(connection):
            connection.close()
            return
        self._connections[connection.fileno()] = (connection, b"")
        self._hear(connection, b"")  # a client sends its question right away

    def _is_trusted(self, connection: socket.socket) -> bool:
        """A command in a world could claim that its edits are recorded."""
        pid, uid = watcher_client.peer(connection)
        try:
            return uid == os.geteuid() and not caller_identity.differs(
                self._standing, caller_identity.standing(pid)
            )
        except OSError:
            return False  # gone again, or hidden

    def _hear(self, connection: socket.socket, root: bytes) -> None:
        try:
            said = connection.recv(_LONGEST_QUESTION)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said[:1] == watcher_client.QUESTION:
            root, _, home = said[1:].partition(b"\0")
            self._connections[connection.fileno()] = (connection, root)
            self._reply(connection, self._workspace(root, home).answer())
        elif said[:1] == watcher_client.LEFT:
            root, _, home = said[1:].partition(b"\0")
            self._workspace(root, home).processes_left()
            self._reply(connection, watcher_client.LEFT)
        elif said[:1] == watcher_client.DONE and root in self._workspaces and said[1:].isdigit():
            self._workspaces[root].settled(int(said[1:]))
        elif said[:1] in (watcher_client.STILL, watcher_client.IN_PASSING):
            in_passing = said[:1] == watcher_client.IN_PASSING
            self._answer_still(connection, said[1:], in_passing=in_passing)
        elif said[:1] == watcher_client.STATUS:
            self._reply(connection, watcher_client.REPORT + json.dumps(self.state()).encode())
        else:
            del self._connections[connection.fileno()]
            self._waiting.discard(connection.fileno())
            connection.close()

    def _answer_still(self, connection: socket.socket, root: bytes, *, in_passing: bool) -> None:
        found = self._workspaces.get(root)  # only a workspace in which a command ran
        self._connections[connection.fileno()] = (connection, root)
        self._waiting.add(connection.fileno())
        token = b"" if found is None else found.still(in_passing=in_passing)
        self._reply(connection, watcher_client.STILL + token)

    def _tell(self, root: bytes) -> None:
        """Report events to the processes that wait with a view of the workspace."""
        for fd in list(self._waiting):
            if self._connections[fd][1] == root:
                self._waiting.discard(fd)
                self._reply(self._connections[fd][0], watcher_client.STIRRED)

    def _reply(self, connection: socket.socket, answer: bytes) -> None:
        try:
            connection.send(answer)
        except OSError:
            pass  # the caller did not wait

    def _workspace(self, root: bytes, home: bytes) -> Watched:
        found = self._workspaces.get(root)
        if found is None:
            idle = [one for one in self._workspaces.values() if one.job is None]
            if len(self._workspaces) >= MOST_WORKSPACES and idle:
                self._forget(min(idle, key=lambda one: one.asked_ns).root)
            found = self._workspaces[root] = Watched(root, self._idle_work_s, watches=self._watches)
        found.home = home
        return found

    def _forget(self, root: bytes) -> None:
        self._workspaces.pop(root).close_all()
        self._tell(root)

    def state(self) -> list[dict[str, object]]:
        return [one.state() for one in self._workspaces.values()]

    def _log(self, lines: list[str]) -> None:
        for line in lines:
            os.write(2, os.fsencode(f"{clock.iso(clock.now_ns())} {line}\n"))
