"""The process that runs one call in its caller's place, forked from the zygote.

It becomes what the caller would have started: descriptors, directory, environment, umask,
limits, ignored signals. Then the ordinary command line runs, and its status goes back.

Signals come over the connection, and so does the caller's end: the kernel tells us by SIGIO,
whatever we are doing. A caller that is gone cannot wait for its command any more: the command is
ended, and what it did until then is recorded.
"""

from __future__ import annotations

import _socket
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from substrate.agent import peer, spare, waiting
from substrate.protocol import door
from substrate.system import afterwards, agent_place, environment, process_tree, signals
from substrate.system.linux import memory
from substrate.trace import writer
from substrate.world import ahead

#: Runs the command line on some words and returns its status.
Program = Callable[[list[str]], int]

#: Whoever sends one of these to a waiting shell's job means all of it.
_FOR_ALL = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
#: After the caller is gone: how often to look, and after how many looks TERM becomes KILL.
_TICK_S = 0.5
_TICKS_TO_KILL = 6
#: How soon to look again for a command that is about to start.
_SOON_S = 0.02


class Household(NamedTuple):
    """What the zygote gives its children."""

    version: bytes
    install: bytes
    standing: peer.Standing
    program: Program
    #: What the zygote knows; it may have to be waited for.
    told: Callable[[], spare.Told]
    zygote_pid: int
    #: The zygote's own limits, which we have, too.
    limits: peer.Limits
    #: Tells the zygote, once the caller has its answer, what the next call may need; with a
    #: mount to hand over, or -1.
    report: Callable[[int], None]
    #: Tells it at the very end what memory the call had to wait for.
    report_pages: Callable[[memory.Spans], None]


def serve(connection: _socket.socket, household: Household) -> NoReturn:
    """Serve one connection, and end this process, which leads a session of its own."""
    status = 1
    try:
        caller = _caller(connection)  # while the request is still on its way
        connection.settimeout(door.PATIENCE_S)
        request, descriptors = door.receive_request(connection)
        connection.settimeout(None)
        if request.kind == b"run":
            status = _serve_run(connection, household, request, descriptors, caller)
        elif isinstance(caller, bytes) or peer.differs(household.standing, caller.standing):
            pass  # a command in a world, or in somebody's sandbox: it must not stop us
        elif request.kind == b"status":
            import json

            door.send_reply(connection, door.REPORT, json.dumps(household.told().state).encode())
        elif request.kind == b"stop":
            os.kill(household.zygote_pid, signal.SIGTERM)
            door.send_reply(connection, door.EXITED, b"0")
    except (OSError, EOFError, ValueError):
        pass  # whoever it was is gone, or spoke another language
    finally:
        try:
            _clear_up(household)
        finally:
            os._exit(status)


def _clear_up(household: Household) -> None:
    """After the answer: nobody waits for this."""
    household.report(ahead.settle())
    ahead.drop()  # the call did not need it
    afterwards.run()
    missed = waiting.missed_pages()
    if missed is not None:
        household.report_pages(missed)
    ahead.see_off()
    afterwards.run_clearing()


def _serve_run(
    connection: _socket.socket,
    household: Household,
    request: door.Request,
    descriptors: list[int],
    caller: _Caller | bytes,
) -> int:
    reason = caller if isinstance(caller, bytes) else _why_not(caller, household, request)
    if not isinstance(caller, bytes) and not reason:
        if b"t" in request.flags:
            ahead.drop()  # it was forked without a terminal
        _take_place(request, descriptors, caller.standing)
    # Only now: it may have to be waited for.
    if not isinstance(caller, bytes) and household.told().is_stale:
        reason = door.STALE
    if reason:
        door.send_reply(connection, door.DECLINED, reason)
        return 0
    _Link(connection)
    door.send_reply(connection, door.STARTED, b"%d" % os.getpid())
    if b"r" in request.flags:
        writer.watchers.append(_reporter(connection))
    afterwards.postpone()
    status = household.program([os.fsdecode(word) for word in request.argv])
    _let_go_of_streams()
    door.send_reply(connection, door.EXITED, b"%d" % status)
    return status


class _Caller(NamedTuple):
    pid: int
    standing: peer.Standing


def _caller(connection: _socket.socket) -> _Caller | bytes:
    """Who it is, or why nobody can say."""
    try:
        pid, uid, _ = agent_place.peer(connection)
        return _Caller(pid, peer.standing(pid)) if uid == os.geteuid() else b"other-user"
    except OSError:
        return b"unknown-caller"


def _why_not(caller: _Caller, household: Household, request: door.Request) -> bytes:
    if request.install != household.install:
        return b"other-install"
    if request.version != household.version:
        newer = _number(request.version) > _number(household.version)
        return door.NEWER_CLIENT if newer else b"older-client"
    different = peer.differs(household.standing, caller.standing)
    if different:
        return different.encode()
    try:
        limits = peer.limits(caller.pid)
    except OSError:
        return b"unknown-caller"
    if limits != household.limits:
        ahead.drop()  # its processes have the zygote's
        if not peer.take_limits(limits):
            return b"other-limits"
    return b""


def _number(version: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(b".") if part.isdigit())


def _take_place(request: door.Request, descriptors: list[int], caller: peer.Standing) -> None:
    stdin, stdout, stderr, directory = descriptors
    for fd, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, target, inheritable=True)
    os.fchdir(directory)
    for fd in descriptors:
        os.close(fd)
    os.umask(request.umask)
    environment.replace(dict(_pair(entry) for entry in request.env if entry[:1] != b"="))
    wanted = caller.ignored_signals
    signals.callers_ignored = tuple(n for n in signals.ORDINARY if wanted >> (n - 1) & 1)
    signals.ignore(signals.callers_ignored)
    signals.callers_mask = signals.in_mask(caller.blocked_signals)
    if b"t" in request.flags:
        _take_terminal()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_file(0, "r")), "utf-8")
    sys.stdout = _writer(1)
    sys.stderr = _writer(2)
    sys.argv = ["substrate", *(os.fsdecode(word) for word in request.argv)]


def _pair(entry: bytes) -> tuple[bytes, bytes]:
    name, _, value = entry.partition(b"=")
    return name, value


def _file(fd: int, mode: str) -> io.FileIO:
    try:
        return io.FileIO(fd, mode, closefd=False)
    except IsADirectoryError:  # for the command; we can neither read it nor write to it
        return io.FileIO(os.devnull, mode)


def _writer(fd: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(_file(fd, "w"))
    return io.TextIOWrapper(raw, "utf-8", line_buffering=fd == 2 or os.isatty(fd))


def _let_go_of_streams() -> None:
    """Whoever reads what the command wrote waits for the last of us to close it, and what we do
    after the answer is nothing to wait for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone
            stream.flush()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _reporter(connection: _socket.socket) -> Callable[[writer.Span], None]:
    def report(span: writer.Span) -> None:
        try:
            door.send_reply(connection, door.REPORT, writer.encode(span))
        except OSError:
            pass  # the caller is gone; the link ends the command

    return report


class _Link:
    """The caller at the other end: its signals, and whether it is still there."""

    def __init__(self, connection: _socket.socket) -> None:
        import fcntl

        self._connection = connection
        self._ticks = 0
        self._is_gone = False
        #: Signals that came before the command did.
        self._waiting = b""
        # While we write things down nothing may end us half-way; while the command runs these
        # are fetched, not handled.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda *_: None)
        signals.sent_to_all_by = os.getpid()
        signal.signal(signal.SIGALRM, lambda *_: self._act())
        signal.signal(signal.SIGIO, lambda *_: self._look())
        fd = connection.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        self._look()  # what came before the kernel was asked to tell

    def _look(self) -> None:
        try:
            said = self._connection.recv(64, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            self._waiting += said
        else:
            self._is_gone = True
        self._act()

    def _act(self) -> None:
        """Do what is due now, and come back if something is left to do."""
        if self._waiting and signals.has_command:
            waiting, self._waiting = self._waiting, b""
            for number in waiting:
                _deliver(number)
        if self._is_gone:
            self._end_command()
        if self._waiting or self._is_gone:
            signal.setitimer(signal.ITIMER_REAL, _TICK_S if self._is_gone else _SOON_S)

    def _end_command(self) -> None:
        """TERM for the command, KILL in the end; nothing while there is none."""
        if signals.has_command:
            self._ticks += 1
            if self._ticks < _TICKS_TO_KILL:
                os.killpg(0, signal.SIGTERM)
            else:
                process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)


def _deliver(number: int) -> None:
    if number in _FOR_ALL:
        os.killpg(0, number)
    elif number in signals.PASSED_ON:
        os.kill(os.getpid(), number)
