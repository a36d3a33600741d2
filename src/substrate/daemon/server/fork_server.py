"""The small process at the heart of the agent: it waits, forks, and buries.

It has imported all that a command needs and opened nothing, so that a fork is a command line
that has already started. HTTP lives in a child of its own, started by the first connection and
gone when it has been idle: most users never need it. So does who watches the workspaces.

It never waits for a client: a connection is accepted and given to a fork at once, or to the one
that was forked after the last call and is ready for it (`agent/spare.py`), or that one has accepted
it itself.
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

from substrate.agent import peer, runner, spare, waiting
from substrate.agent.bell import Bell
from substrate.agent.lifecycle import Home
from substrate.agent.stale import LoadedCode
from substrate.agent.watcher import Watcher
from substrate.system import agent_place, clock, signals, watch_talk
from substrate.world import ahead

#: Calls beyond this wait in the socket's queue.
MOST_RUNNING = 128
#: Until a server that died is started again.
_SERVER_PAUSE_NS = 2_000_000_000


class Settings(NamedTuple):
    version: str
    install: str
    program: runner.Program
    #: Runs the HTTP server on a listening socket until it has nothing to do.
    server: Callable[[socket.socket, Home], None]
    #: Brings in what the first command would import otherwise.
    preload: Callable[[], None]
    idle_exit_s: float
    #: After so long without a command a workspace is tidied up; and whether it is watched.
    idle_work_s: float = float("inf")
    watches: bool = True


class Zygote:
    """Serve until asked to stop, or idle for long."""

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
        self._last_use_ns = clock.monotonic_ns()
        self._standing = peer.standing(os.getpid())
        self._limits = peer.limits(os.getpid())
        #: What we listen to; a child closes it.
        self._own: list[int] = []
        self._spares = spare.Spares()
        self._ahead = 0
        self._warm = 0
        self._is_pressed = False
        # What children tell us when they have answered: one message, one datagram.
        self._bell = Bell()

    def run(self, ready: Callable[[], None]) -> None:
        door, http, watch = self._home.listen()
        # Whoever started us may ignore or block some; that is not for the commands of others.
        signals.heed(signals.ignored())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # A signal wakes the poll through this pipe; what it means is looked up afterwards.
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # The watcher saw somebody at work in a workspace.
        signal.signal(signal.SIGUSR1, lambda *_: self._used())
        self._own = [*(s.fileno() for s in (door, http, watch, self._bell)), awake]
        self._home.write_state(self._state())
        ready()
        self._settings.preload()
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
        while not self._stopping and not self._is_idle():
            poll = select.poll()
            poll.register(awake, select.POLLIN)
            poll.register(self._bell, select.POLLIN)
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
                self._serve_one(door)  # else it is the one's who has got the door since we looked
            if http.fileno() in ready:
                self._start_server(http)
            if watch.fileno() in ready:
                self._start_watcher(watch)
            if self._bell.fileno() in ready:
                self._hear_child()

    def _serve_one(self, door: socket.socket) -> None:
        try:
            connection, _ = door.accept()
        except OSError:  # it changed its mind
            return
        self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        self._used()
        self._served += 1
        told = self._told()
        handed = spare.Handed(connection, lambda: told)
        pid = self._give_to_spare(handed) or self._fork()
        if pid == 0:
            self._serve_in_child(lambda: handed)
        if pid > 0:
            self._running.add(pid)
        connection.close()
        self._stopping = self._stopping or told.is_stale
        if self._is_pressed:
            self._fork_spares(in_a_hurry=True)

    def _hear_spare(self, one: spare.Spare, door: socket.socket) -> None:
        said, fds = one.hear()
        if said == "taken":
            self._used()
            self._served += 1
            self._spares.take(one)
            told = self._told()  # which does not count the call that asks
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
            pass  # what it waited with was out of date: until it is ready again, we listen
        else:
            self._spares.forget(one.pid)

    def _let_one_listen(self, door: socket.socket) -> None:
        found = self._spares.next_listener()
        is_free = self._spares.listener() is None and len(self._running) < MOST_RUNNING
        if found is not None and is_free and not self._stopping:
            found.let_listen(door.fileno())

    def _give_to_spare(self, handed: spare.Handed) -> int:
        """The process that takes it; 0 if there is none."""
        try:
            caller = agent_place.peer(handed.connection)[0]
        except OSError:
            return 0
        ready = self._spares.take_for(caller, is_server=caller == self._server_pid)
        if ready is None or not ready.hand_over(handed):
            return 0
        # Calls that come quickly cannot wait until this one is answered; others are not to be
        # disturbed by the next one's preparations.
        self._is_pressed = ready.is_young
        return ready.pid

    def _fork_spares(self, *, in_a_hurry: bool = False) -> None:
        """`in_a_hurry`: a call is being served, and another one may come before it is answered."""
        for root, recipe in self._spares.missing():
            ours, theirs = spare.pair()
            warm = self._spares.warm_for(root, self._still)
            pid = -1 if self._stopping else self._fork()
            if pid == 0:
                ours.close()
                wait = partial(waiting.wait, theirs, recipe, warm, self._spares.pages)
                self._serve_in_child(partial(wait, alone=not in_a_hurry))
            theirs.close()
            if warm is not None:
                warm.close()
            if pid > 0:
                self._spares.add(root, spare.Spare(pid, ours))
            else:
                ours.close()
        self._spares.drop_view()  # somebody was forked before it came

    def _still(self, root: bytes) -> watch_talk.StillTree:
        return watch_talk.StillTree(os.fsencode(self._home.watch_path), root)

    def _serve_in_child(self, call: Callable[[], spare.Handed | None]) -> NoReturn:
        gc.disable()  # it ends soon, and what it shares with us is not to be touched
        try:
            zygote_pid = os.getppid()
            self._become_child()
            os.setsid()
            handed = call()
            if handed is None:
                os._exit(0)
            household = runner.Household(
                self._settings.version.encode(), os.fsencode(self._settings.install),
                self._standing, self._settings.program, handed.told, zygote_pid,
                self._limits, lambda view: self._bell.tell_news(ahead.news, view),
                self._bell.tell_pages,
            )  # fmt: skip
            runner.serve(handed.connection, household)
        finally:
            os._exit(1)

    def _hear_child(self) -> None:
        news, view, pages = self._bell.hear()
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
        pid = self._fork()
        if pid == 0:
            status = 1
            try:
                self._own.remove(listener.fileno())
                self._become_child()
                os.setsid()
                work(listener, self._home)
                status = 0
            finally:
                os._exit(status)
        return max(pid, 0)

    def _watch(self, listener: socket.socket, _: Home) -> None:
        settings = self._settings
        Watcher(listener, self._pid, settings.idle_work_s, watches=settings.watches).run()

    def _fork(self) -> int:
        try:
            return os.fork()
        except OSError:  # no process to spare: the caller runs its command itself
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
        self._spares.close()  # our copies: they must see the end of the zygote's

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
        left_ns = int(self._settings.idle_exit_s * 1e9) - (clock.monotonic_ns() - self._last_use_ns)
        if not self._server_pid and self._server_not_before_ns > clock.monotonic_ns():
            left_ns = min(left_ns, _SERVER_PAUSE_NS)
        if not self._watcher_pid and self._watcher_not_before_ns > clock.monotonic_ns():
            left_ns = min(left_ns, _SERVER_PAUSE_NS)
        return max(50, min(left_ns // 1_000_000 + 1, 60_000))

    def _told(self) -> spare.Told:
        return spare.Told(self._code.is_stale(), self._state())

    def _state(self) -> dict[str, object]:
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
            "spares": len(self._spares),
            "ahead": self._ahead,
            "warm": self._warm,
            "idle_exit_s": self._settings.idle_exit_s,
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
