"""The process that runs one call in its caller's place, forked from the fork server.

It takes over what a process started by the caller would have: descriptors, directory, environment,
umask, limits, ignored signals. Then the ordinary command line runs, and its status goes back.

The caller's signals come over the connection, and its end shows as end of file: the kernel reports
both by SIGIO, at any time. A caller that is gone cannot wait for its command any more, so the
command is ended, and what it did until then is recorded.
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

from substrate.daemon.notes_to_client import notes_stream
from substrate.daemon.prefork import prefork_parent, speed_layer
from substrate.daemon.server import caller_identity
from substrate.protocol import daemon_wire
from substrate.system import daemon_paths, environment, umask
from substrate.system.process import die_of_signal, process_tree, signals
from substrate.trace import writer

#: Runs the command line on some arguments and returns its status.
Program = Callable[[list[str]], int]

#: These signals are meant for every process of a shell's job.
_FOR_ALL = signals.those_of("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
#: After the caller is gone: how often to check, and after how many checks TERM becomes KILL.
_TICK_S = 0.5
_TICKS_TO_KILL = 6
#: How soon to check again for a command that is about to start.
_SOON_S = 0.02


class RunnerContext(NamedTuple):
    """What the fork server gives its children."""

    version: bytes
    install: bytes
    standing: caller_identity.Standing
    program: Program
    #: The fork server's state; the call may have to wait for it.
    told: Callable[[], prefork_parent.Told]
    fork_server_pid: int
    #: The fork server's own limits, which this process has, too.
    limits: caller_identity.Limits
    speed: speed_layer.PlainPath


def serve(connection: _socket.socket, context: RunnerContext) -> NoReturn:
    """Serve one connection, and end this process, which leads its own session."""
    status = 1
    try:
        caller = _caller(connection)  # while the request is still on its way
        connection.settimeout(daemon_wire.PATIENCE_S)
        request, descriptors = daemon_wire.receive_request(connection)
        connection.settimeout(None)
        if request.kind == b"run":
            status = _serve_run(connection, context, request, descriptors, caller)
        elif isinstance(caller, bytes) or caller_identity.differs(
            context.standing, caller.standing
        ):
            pass  # a command in a world or another sandbox: it must not stop the daemon
        elif request.kind == b"status":
            import json

            daemon_wire.send_reply(
                connection, daemon_wire.REPORT, json.dumps(context.told().state).encode()
            )
        elif request.kind == b"stop":
            os.kill(context.fork_server_pid, signal.SIGTERM)
            daemon_wire.send_reply(connection, daemon_wire.EXITED, b"0")
    except (OSError, EOFError, ValueError):
        pass  # the caller is gone, or sent something else than a request
    finally:
        try:
            context.speed.after_answer()
        finally:
            os._exit(status)


def _serve_run(
    connection: _socket.socket,
    context: RunnerContext,
    request: daemon_wire.Request,
    descriptors: list[int],
    caller: _Caller | bytes,
) -> int:
    reason = caller if isinstance(caller, bytes) else _why_not(caller, context, request)
    if not isinstance(caller, bytes) and not reason:
        if b"t" in request.flags:
            context.speed.drop_world()  # it was forked without a terminal
        _take_place(request, descriptors, caller.standing)
    # Only now: this may have to wait for the fork server.
    if not isinstance(caller, bytes) and context.told().is_stale:
        reason = daemon_wire.STALE
    if reason:
        daemon_wire.send_reply(connection, daemon_wire.DECLINED, reason)
        return 0
    _Link(connection)
    daemon_wire.send_reply(connection, daemon_wire.STARTED, b"%d" % os.getpid())
    if b"r" in request.flags:
        writer.watchers.append(_reporter(connection))
        if b"t" not in request.flags:  # a terminal shows both streams, as it does to any other user
            sys.stderr = notes_stream(connection)
    context.speed.answer_first()
    status = context.program([os.fsdecode(word) for word in request.argv])
    _let_go_of_streams()
    number = die_of_signal.signal_for(status)
    daemon_wire.send_reply(connection, daemon_wire.EXITED, b"%d" % (-number if number else status))
    return status


class _Caller(NamedTuple):
    pid: int
    standing: caller_identity.Standing


def _caller(connection: _socket.socket) -> _Caller | bytes:
    """The caller, or the reason why it cannot be identified."""
    try:
        pid, uid, _ = daemon_paths.peer(connection)
        return _Caller(pid, caller_identity.standing(pid)) if uid == os.geteuid() else b"other-user"
    except OSError:
        return b"unknown-caller"


def _why_not(caller: _Caller, context: RunnerContext, request: daemon_wire.Request) -> bytes:
    if request.install != context.install:
        return b"other-install"
    if request.version != context.version:
        newer = _number(request.version) > _number(context.version)
        return daemon_wire.NEWER_CLIENT if newer else b"older-client"
    different = caller_identity.differs(context.standing, caller.standing)
    if different:
        return different.encode()
    try:
        limits = caller_identity.limits(caller.pid)
    except OSError:
        return b"unknown-caller"
    if limits != context.limits:
        context.speed.drop_world()  # its processes have the fork server's limits
        if not caller_identity.take_limits(limits):
            return b"other-limits"
    return b""


def _number(version: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(b".") if part.isdigit())


def _take_place(
    request: daemon_wire.Request, descriptors: list[int], caller: caller_identity.Standing
) -> None:
    stdin, stdout, stderr, directory = descriptors
    for fd, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, target, inheritable=True)
    os.fchdir(directory)
    for fd in descriptors:
        os.close(fd)
    umask.take(request.umask)
    environment.replace(dict(_pair(entry) for entry in request.env if entry[:1] != b"="))
    wanted = caller.ignored_signals
    signals.caller.ignored = tuple(n for n in signals.ORDINARY if wanted >> (n - 1) & 1)
    signals.ignore(signals.caller.ignored)
    signals.caller.mask = signals.in_mask(caller.blocked_signals)
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
    except IsADirectoryError:  # only the command can use it; we can neither read it nor write to it
        return io.FileIO(os.devnull, mode)


def _writer(fd: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(_file(fd, "w"))
    return io.TextIOWrapper(raw, "utf-8", line_buffering=fd == 2 or os.isatty(fd))


def _let_go_of_streams() -> None:
    """Readers of the command's output wait until the last copy is closed; they must not wait for
    the work that we do after the answer."""
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
            daemon_wire.send_reply(connection, daemon_wire.REPORT, writer.encode(span))
        except OSError:
            pass  # the caller is gone; `_Link` ends the command

    return report


class _Link:
    """The caller at the other end: its signals, and whether it is still there."""

    def __init__(self, connection: _socket.socket) -> None:
        import fcntl

        self._connection = connection
        self._ticks = 0
        self._is_gone = False
        #: Signals that came before the command started.
        self._waiting = b""
        # While we record, no signal may end us half-way; while the command runs, these signals are
        # fetched, not handled.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda *_: None)
        signals.caller.sends_to_all = os.getpid()
        signal.signal(signal.SIGALRM, lambda *_: self._act())
        signal.signal(signal.SIGIO, lambda *_: self._look())
        fd = connection.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        self._look()  # what came before SIGIO was requested

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
        """Do what is due now, and set a timer if something is left to do."""
        if self._waiting and signals.caller.has_command:
            waiting, self._waiting = self._waiting, b""
            for number in waiting:
                _deliver(number)
        if self._is_gone:
            self._end_command()
        if self._waiting or self._is_gone:
            signal.setitimer(signal.ITIMER_REAL, _TICK_S if self._is_gone else _SOON_S)

    def _end_command(self) -> None:
        """TERM for the command, KILL in the end; nothing while there is none."""
        if signals.caller.has_command:
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
