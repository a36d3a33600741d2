"""The fork server, the daemon's small main process: it waits, forks and reaps.

It has imported everything that a command needs and opened nothing, so a fork is a command line
that has already started. HTTP runs in its own child, which the first connection starts and which
ends when it is idle: most users never need it. The watcher of workspaces is also its own child.

The fork server never waits for a client. It accepts a connection and gives it to a fork at once,
or to the spare that was forked after the last call and is ready for it
(`daemon/prefork/prefork_parent.py`); or that spare has accepted it itself.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from substrate.daemon.prefork import prefork_parent, speed_layer
from substrate.daemon.server import caller_identity, runner
from substrate.daemon.server.code_version_check import LoadedCode
from substrate.daemon.server.lifecycle import Home
from substrate.daemon.watcher import Watcher
from substrate.system import clock, daemon_paths, watcher_client
from substrate.system.process import Channel, fork_child, signals

#: Calls beyond this wait in the socket's queue.
MOST_RUNNING = 128
#: The pause before a server that died is started again.
_SERVER_PAUSE_NS = 2_000_000_000
#: How often to check whether our own code is still there: ``pip uninstall`` ends us.
_LOOK_NS = 15_000_000_000


class Settings(NamedTuple):
    version: str
    install: str
    program: runner.Program
    #: Runs the HTTP server on a listening socket until it is idle.
    server: Callable[[socket.socket, Home], None]
    #: Imports what the first command would otherwise import.
    preload: Callable[[], None]
    idle_exit_s: float
    #: After so long without a command a workspace is tidied up; and whether it is watched.
    idle_work_s: float = float("inf")
    watches: bool = True
    #: Whether anything is prepared before a call: `daemon/prefork/speed_layer.py`.
    speed: bool = True


class ForkServer:
    """Serves until asked to stop, or idle for long."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._code = LoadedCode(settings.install)
        self._started_ns = clock.now_ns()
        self._pid = os.getpid()
        self._running: set[int] = set()
        self._served = 0
        self._server_pid = 0
        self._server_not_before_ns = 0
        self._watcher_pid = 0
        self._watcher_not_before_ns = 0
        self._stopping = False
        self._last_use_ns = self._looked_ns = clock.monotonic_ns()
        self._standing = caller_identity.standing(os.getpid())
        self._limits = caller_identity.limits(os.getpid())
        #: The descriptors we listen on; a child closes them.
        self._own: list[int] = []
        self._speed = speed_layer.SpeedLayer() if settings.speed else speed_layer.PlainPath()
        self._spares = self._speed.spares
        self._reports = self._speed.reports
        self._ahead = 0
        self._warm = 0
        self._is_pressed = False

    def run(self, ready: Callable[[], None]) -> None:
        door, http, watch = self._home.listen()
        # The process that started us may ignore or block signals; other callers' commands must not.
        signals.heed(signals.ignored())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # A signal wakes the poll through this pipe; what it means is looked up afterwards.
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # The watcher saw activity in a workspace.
        signal.signal(signal.SIGUSR1, lambda *_: self._used())
        self._own = [*(s.fileno() for s in (door, http, watch, self._reports)), awake]
        self._home.write_state(self._state())
        ready()
        self._speed.preload(self._settings.preload)
        self._code.remember()
        gc.collect()
        gc.freeze()
        try:
            self._loop(door, http, watch, awake)
        finally:
            self._home.leave()
            self._stop_helpers()
            self._spares.close()

    def _loop(
        self, door: socket.socket, http: socket.socket, watch: socket.socket, awake: int
    ) -> None:
        self._fork_spares()
        while not self._stopping and not self._is_idle() and not self._is_uninstalled():
            poll = select.poll()
            poll.register(awake, select.POLLIN)
            poll.register(self._reports, select.POLLIN)
            for one in self._spares:
                poll.register(one, select.POLLIN)
            if len(self._running) < MOST_RUNNING and self._spares.listener() is None:
                poll.register(door, select.POLLIN)
            if not self._server_pid and clock.monotonic_ns() >= self._server_not_before_ns:
                poll.register(http, select.POLLIN)
            if not self._watcher_pid and clock.monotonic_ns() >= self._watcher_not_before_ns:
                poll.register(watch, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            if awake in ready:
                _drain(awake)
            self._bury()
            for one in self._spares:
                if one.fileno() in ready:
                    self._hear_spare(one, door)
            if door.fileno() in ready and self._spares.listener() is None:
                self._serve_one(door)  # otherwise a spare has got the door since the poll
            if http.fileno() in ready:
                self._start_server(http)
            if watch.fileno() in ready:
                self._start_watcher(watch)
            if self._reports.fileno() in ready:
                self._hear_child()

    def _serve_one(self, door: socket.socket) -> None:
        try:
            connection, _ = door.accept()
        except OSError:  # the caller disconnected
            return
        self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        self._used()
        self._served += 1
        told = self._told()
        handed = prefork_parent.Handed(connection, lambda: told)
        pid = self._give_to_spare(handed) or self._fork(
            lambda: self._serve_in_child(lambda: handed)
        )
        if pid > 0:
            self._running.add(pid)
        connection.close()
        self._stopping = self._stopping or told.is_stale
        if self._is_pressed:
            self._fork_spares(in_a_hurry=True)

    def _hear_spare(self, one: prefork_parent.Spare, door: socket.socket) -> None:
        said, fds = one.hear()
        if said == "taken":
            self._used()
            self._served += 1
            self._spares.take(one)
            told = self._told()  # this does not count the call that asks
            self._running.add(one.pid)
            one.tell(told)
            self._stopping = self._stopping or told.is_stale
            if one.is_young:  # see `_give_to_spare`
                self._fork_spares(in_a_hurry=True)
        elif said == "other":
            self._serve(socket.socket(fileno=fds[0]))
        elif said == "ready":
            self._let_one_listen(door)
        elif said == "busy":
            pass  # its world was out of date: we listen until it is ready again
        else:
            self._spares.forget(one.pid)

    def _let_one_listen(self, door: socket.socket) -> None:
        found = self._spares.next_listener()
        is_free = self._spares.listener() is None and len(self._running) < MOST_RUNNING
        if found is not None and is_free and not self._stopping:
            found.let_listen(door.fileno())

    def _give_to_spare(self, handed: prefork_parent.Handed) -> int:
        """The process that takes the call; 0 if there is none."""
        try:
            caller = daemon_paths.peer(handed.connection)[0]
        except OSError:
            return 0
        ready = self._spares.take_for(caller, is_server=caller == self._server_pid)
        if ready is None or not ready.hand_over(handed):
            return 0
        # If calls come quickly, fork the next spare now. Otherwise wait until this call is
        # answered: preparing a spare would disturb it.
        self._is_pressed = ready.is_young
        return ready.pid

    def _fork_spares(self, *, in_a_hurry: bool = False) -> None:
        """`in_a_hurry`: a call is being served, and another may come before it is answered."""
        for root, recipe in self._speed.missing():
            ours, theirs = prefork_parent.pair()
            warm = self._spares.warm_for(root, self._still)
            wait = self._speed.waiting(theirs, recipe, warm, alone=not in_a_hurry)
            serve = partial(self._serve_as_spare, ours, wait)
            pid = -1 if self._stopping else self._fork(serve)
            theirs.close()
            if warm is not None:
                warm.close()
            if pid > 0:
                self._spares.add(root, prefork_parent.Spare(pid, ours))
            else:
                ours.close()
        self._spares.drop_view()  # that workspace's spare was forked before the view came

    def _still(self, root: bytes) -> watcher_client.StillTree:
        return watcher_client.StillTree(os.fsencode(self._home.watch_path), root)

    def _serve_as_spare(
        self, fork_servers: Channel, wait: Callable[[], prefork_parent.Handed | None]
    ) -> None:
        fork_servers.close()
        self._serve_in_child(wait)

    def _serve_in_child(self, call: Callable[[], prefork_parent.Handed | None]) -> NoReturn:
        gc.disable()  # it ends soon, and collecting would copy the pages it shares with us
        try:
            fork_server_pid = os.getppid()
            self._become_child()
            os.setsid()
            handed = call()
            if handed is None:
                os._exit(0)
            context = runner.RunnerContext(
                self._settings.version.encode(), os.fsencode(self._settings.install),
                self._standing, self._settings.program, handed.told, fork_server_pid,
                self._limits, self._speed,
            )  # fmt: skip
            runner.serve(handed.connection, context)
        finally:
            os._exit(1)

    def _hear_child(self) -> None:
        news, view, pages = self._reports.hear()
        if pages is not None:
            self._spares.learn_pages(pages)
        if news is None:
            return
        if news.root:
            self._spares.learn(news, view)
            self._ahead += news.was_ahead
            self._warm += news.was_warm
        self._fork_spares()

    def _start_server(self, http: socket.socket) -> None:
        self._used()
        self._server_pid = self._start_helper(http, self._settings.server)
        if not self._server_pid:
            self._server_not_before_ns = clock.monotonic_ns() + _SERVER_PAUSE_NS

    def _start_watcher(self, watch: socket.socket) -> None:
        self._watcher_pid = self._start_helper(watch, self._watch)
        if not self._watcher_pid:
            self._watcher_not_before_ns = clock.monotonic_ns() + _SERVER_PAUSE_NS

    def _start_helper(
        self, listener: socket.socket, work: Callable[[socket.socket, Home], None]
    ) -> int:
        """A child that serves on `listener` from now on; 0 if there is none."""

        def serve() -> None:
            self._own.remove(listener.fileno())
            self._become_child()
            os.setsid()
            work(listener, self._home)

        return max(self._fork(serve), 0)

    def _watch(self, listener: socket.socket, _: Home) -> None:
        settings = self._settings
        Watcher(listener, self._pid, settings.idle_work_s, watches=settings.watches).run()

    def _fork(self, work: Callable[[], None]) -> int:
        try:
            return fork_child(work)
        except OSError:  # no more processes: the caller runs its command itself
            return -1

    def _become_child(self) -> None:
        old_wake = signal.set_wakeup_fd(-1)
        if old_wake >= 0:
            os.close(old_wake)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._home.close_in_child()
        for fd in self._own:
            os.close(fd)
        self._spares.close()  # our copies: the spares must see when the fork server closes its own

    def _bury(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._watcher_pid:
                self._watcher_pid = 0
                self._watcher_not_before_ns = clock.monotonic_ns() + _SERVER_PAUSE_NS
                continue
            self._used()
            self._running.discard(pid)
            self._spares.forget(pid)
            if pid == self._server_pid:
                self._server_pid = 0
                if status != 0:
                    self._server_not_before_ns = clock.monotonic_ns() + _SERVER_PAUSE_NS

    def _is_idle(self) -> bool:
        idle_ns = clock.monotonic_ns() - self._last_use_ns
        return (
            not self._running
            and not self._server_pid
            and idle_ns > self._settings.idle_exit_s * 1e9
        )

    def _patience_ms(self) -> int:
        # Infinite if it never ends by itself, so that it is an int only after the minimum.
        left_ns = self._settings.idle_exit_s * 1e9 - (clock.monotonic_ns() - self._last_use_ns)
        if not self._server_pid and self._server_not_before_ns > clock.monotonic_ns():
            left_ns = min(left_ns, _SERVER_PAUSE_NS)
        if not self._watcher_pid and self._watcher_not_before_ns > clock.monotonic_ns():
            left_ns = min(left_ns, _SERVER_PAUSE_NS)
        return max(50, int(min(left_ns, _LOOK_NS)) // 1_000_000 + 1)

    def _is_uninstalled(self) -> bool:
        """Whether our code was removed or replaced. Running commands still finish."""
        now = clock.monotonic_ns()
        if now - self._looked_ns < _LOOK_NS:
            return False
        self._looked_ns = now
        return self._code.is_stale()

    def _told(self) -> prefork_parent.Told:
        return prefork_parent.Told(self._code.is_stale(), self._state())

    def _state(self) -> dict[str, object]:
        never = self._settings.idle_exit_s == float("inf")
        return {
            "pid": self._pid,
            "version": self._settings.version,
            "install": self._settings.install,
            "socket": str(self._home.socket_path),
            "started": clock.iso(self._started_ns),
            "commands": len(self._running),
            "served": self._served,
            "server_pid": self._server_pid or None,
            "watcher_pid": self._watcher_pid or None,
            "speed": self._speed.is_on,
            "spares": len(self._spares),
            "ahead": self._ahead,
            "warm": self._warm,
            # 0, as in the setting: JSON has no infinity.
            "idle_exit_s": 0 if never else self._settings.idle_exit_s,
        }

    def _stop(self) -> None:
        self._stopping = True

    def _used(self) -> None:
        self._last_use_ns = clock.monotonic_ns()

    def _stop_helpers(self) -> None:
        """They finish what they are doing, and then end by themselves."""
        for pid in (self._server_pid, self._watcher_pid):
            if pid:
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass
