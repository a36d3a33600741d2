"""Hand this call to the daemon, if that changes nothing but the time it takes.

The interpreter's start is most of what a small command costs, so nothing is imported here that
is not loaded anyway, besides `_socket`: no `os`, `socket`, `signal`, `typing` or `json`.

The daemon's process runs the same command line with our descriptors, directory, environment and
umask, but in its own session. With a terminal, the command would notice that (Ctrl-Z, /dev/tty,
background jobs). So a call runs in this process if it has a terminal; if it has more than three
descriptors and it (or make, for its job server) names one; or if it is inside a command that we
run.
"""

from __future__ import annotations

import posix
import sys

import substrate
from substrate.system import daemon_paths, umask

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Mapping, Sequence

    from substrate.protocol import daemon_wire
else:
    import _signal

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_VALUED = (
    *(b"--session", b"--agent-id", b"--workspace", b"-C", b"--isolate", b"--net", b"--timeout"),
    *(b"--writable", b"--limit-pids", b"--limit-memory", b"--limit-cpus", b"--check"),
)
_LOST = b"""substrate: error: the daemon was lost while the command ran
hint: `substrate log` shows what was recorded; the next call records what is missing
"""
EXIT_RUN_FAILED = 125


def offer(words: Sequence[str]) -> int | None:
    """The command's exit status from the daemon; None: run it in this process."""
    env = daemon_paths.variables()
    argv = [_encoded(word) for word in words]
    if not is_wanted(env) or not (is_hook(argv) or (is_run(argv) and not has_terminal())):
        return None
    if (names_descriptor(argv) or names_job_server(env)) and has_more_descriptors():
        return None
    socket = daemon_paths.socket_path(env)
    if socket is None:
        return None
    try:
        connection = _meet(daemon_paths.directory(socket))
    except OSError:
        _start_daemon(socket, b"")
        return None
    # Import this only now: the daemon wakes up during the import.
    from substrate.protocol import daemon_wire

    request = daemon_wire.Request(
        b"run", argv, [name + b"=" + value for name, value in env.items()],
        version=substrate.__version__.encode(), install=install(), umask=umask.current(),
    )  # fmt: skip
    return _converse(connection, request, socket)


def _meet(directory: bytes) -> _socket.socket:
    if not daemon_paths.is_ours(directory):
        raise FileNotFoundError("no daemon")
    return daemon_paths.connect(daemon_paths.door(directory))


def is_run(argv: Sequence[bytes]) -> bool:
    """Whether these words run a command: the verb is `run`, or -c or -f takes its place."""
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in (b"-c", b"-f", b"run"):
            return True
        elif word in _VALUED:
            skip = True
        elif not word.startswith(b"-") or word in (b"--help", b"-h", b"--version"):
            return False
    return False


def is_hook(argv: Sequence[bytes]) -> bool:
    """Whether a coding agent reports something; the terminal is the agent's, and not used."""
    return len(argv) == 2 and argv[0] == b"hook" and not argv[1].startswith(b"-")


def is_wanted(env: Mapping[bytes, bytes]) -> bool:
    # Inside a command of ours the daemon is unreachable, and that command is the call's parent.
    return (
        sys.platform == "linux"
        and env.get(b"SUBSTRATE_DAEMON", b"").lower() != b"off"
        and env.get(b"SUBSTRATE_AGENT", b"").lower() != b"off"  # its former name
        and not env.get(b"SUBSTRATE_PARENT_SPAN")
        and not env.get(b"SUBSTRATE_WORLD_ID")
    )


def has_terminal() -> bool:
    """A terminal on 0, 1 or 2, or one that could be opened as /dev/tty; or a closed descriptor."""
    for fd in (0, 1, 2):
        try:
            posix.fstat(fd)
        except OSError:
            return True
        if posix.isatty(fd):
            return True
    try:
        posix.close(posix.open("/dev/tty", posix.O_RDWR | posix.O_NOCTTY | posix.O_CLOEXEC))
    except OSError:
        return False
    return True


def names_descriptor(argv: Sequence[bytes]) -> bool:
    """Whether a word names a descriptor above 2, as `/dev/fd/63` or `<&3`."""
    for word in argv:
        if b"/fd/" in word:
            return True
        for after in word.replace(b">&", b"<&").split(b"<&")[1:]:
            first, second = after[:1], after[1:2]
            if first and (first in b'3456789$"' or (first in b"012" and second.isdigit())):
                return True
    return False


def names_job_server(env: Mapping[bytes, bytes]) -> bool:
    """Whether make or cargo names descriptors of a job server; a FIFO is named by its path."""
    for name in (b"MAKEFLAGS", b"CARGO_MAKEFLAGS"):
        for option in (b"--jobserver-auth=", b"--jobserver-fds="):
            if env.get(name, b"").partition(option)[2][:1].isdigit():
                return True
    return False


def has_more_descriptors() -> bool:
    """Besides 0, 1 and 2. Many callers leave unused ones open, so this alone says little."""
    for name in posix.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and posix.get_inheritable(int(name)):
                return True
        except OSError:  # the descriptor that this list was read from
            continue
    return False


def install() -> bytes:
    """Identifies this installation: two installations can have the same version."""
    return _encoded(substrate.__file__.rpartition("/")[0])


def _encoded(word: str) -> bytes:
    return word.encode(sys.getfilesystemencoding(), "surrogateescape")


def _converse(
    connection: _socket.socket, request: daemon_wire.Request, socket: bytes
) -> int | None:
    from substrate.protocol import daemon_wire

    relay = _Relay(connection)
    started = False
    try:
        here = posix.open(".", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
        daemon_wire.send_request(connection, request, (0, 1, 2, here))
        while True:
            kind, payload = daemon_wire.receive_reply(connection)
            if kind == daemon_wire.STARTED:
                started = True
                relay.runner = int(payload)
                relay.install()
            elif kind == daemon_wire.DECLINED:
                if payload in (daemon_wire.STALE, daemon_wire.NEWER_CLIENT):
                    _start_daemon(socket, payload)
                return None
            elif kind == daemon_wire.EXITED:
                return int(payload)
    except (OSError, EOFError, ValueError):
        if started:
            relay.end_command()
            posix.write(2, _LOST)
            return EXIT_RUN_FAILED
        _say_fallback(socket, request.argv)
        return None
    finally:
        relay.remove()
        connection.close()


class _Relay:
    """Passes on the signals we get while the daemon runs the command.

    It begins when the command starts. A signal before that ends this process as usual, even if the
    daemon does not answer, and no signal goes to a daemon that then declines.
    """

    def __init__(self, connection: _socket.socket) -> None:
        self._connection = connection
        self._before: dict[int, _signal._HANDLER] = {}
        self.runner = 0

    def install(self) -> None:
        for name in _FORWARDED:
            number = getattr(_signal, name)
            if _signal.getsignal(number) != _signal.SIG_IGN:
                self._before[number] = _signal.signal(number, self._pass_on)

    def remove(self) -> None:
        for number, handler in self._before.items():
            _signal.signal(number, handler)

    def _pass_on(self, number: int, _frame: object) -> None:
        if number in (_signal.SIGTSTP, _signal.SIGCONT):
            self._stop_or_go_on(number)
            return
        try:
            self._connection.send(bytes((number,)))
        except OSError:
            pass

    def end_command(self) -> None:
        """Kill the command: its recorder is gone, so what it does from now on would be lost."""
        if self.runner <= 1:  # our own group, or every process
            return
        try:
            posix.killpg(self.runner, _signal.SIGKILL)
        except OSError:
            pass

    def _stop_or_go_on(self, number: int) -> None:
        """A stopped process reads nothing, so stop and continue its process group from here."""
        stopping = number == _signal.SIGTSTP
        if self.runner > 1:
            try:
                posix.killpg(self.runner, _signal.SIGSTOP if stopping else _signal.SIGCONT)
            except OSError:
                pass
        if stopping:
            posix.kill(posix.getpid(), _signal.SIGSTOP)


def _start_daemon(socket: bytes, reason: bytes) -> None:
    from substrate.client import autostart

    autostart.start(socket, replace=bool(reason))


def _say_fallback(socket: bytes, argv: Sequence[bytes]) -> None:
    from substrate.client import autostart

    autostart.say_fallback(socket, argv)
