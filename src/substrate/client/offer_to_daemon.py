"""Hand this call to the agent, if that changes nothing but the time it takes.

The interpreter's start is most of what a small command costs, so nothing is imported here that
is not loaded anyway, besides `_socket`: no `os`, `socket`, `signal`, `typing` or `json`.

The agent's process runs the same command line with our descriptors, directory, environment and
umask, but in a session of its own. Who has a terminal would notice (Ctrl-Z, /dev/tty, background
jobs), so with one the call stays in this process; so does a call that has more descriptors than
three and names one (or make has: its job server), and a call inside a command that we run.
"""

from __future__ import annotations

import posix
import sys

import substrate
from substrate.system import agent_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Mapping, Sequence

    from substrate.protocol import door
else:
    import _signal

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_VALUED = (
    *(b"--session", b"--agent-id", b"--workspace", b"-C", b"--isolate", b"--net", b"--timeout"),
    *(b"--writable", b"--limit-pids", b"--limit-memory", b"--limit-cpus"),
)
_LOST = b"""substrate: error: the agent was lost while the command ran
hint: `substrate log` shows what was recorded; the next call records what is missing
"""
EXIT_RUN_FAILED = 125


def offer(words: Sequence[str]) -> int | None:
    """The command's exit status from the agent; None: run it in this process."""
    env = agent_place.variables()
    argv = [_encoded(word) for word in words]
    if not is_run(argv) or not is_wanted(env) or has_terminal():
        return None
    if (names_descriptor(argv) or names_job_server(env)) and has_more_descriptors():
        return None
    socket = agent_place.socket_path(env)
    if socket is None:
        return None
    try:
        connection = _meet(agent_place.directory(socket))
    except OSError:
        _start_agent(socket, b"")
        return None
    # Only now: while this is imported, the agent wakes up.
    from substrate.protocol import door

    umask = posix.umask(0o077)
    posix.umask(umask)
    request = door.Request(
        b"run", argv, [name + b"=" + value for name, value in env.items()],
        version=substrate.__version__.encode(), install=install(), umask=umask,
    )  # fmt: skip
    return _converse(connection, request, socket)


def _meet(directory: bytes) -> _socket.socket:
    if not agent_place.is_ours(directory):
        raise FileNotFoundError("no agent")
    return agent_place.connect(agent_place.door(directory))


def is_run(argv: Sequence[bytes]) -> bool:
    """Whether these words run a command: the verb is `run`, or -c or -f stands for it."""
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


def is_wanted(env: Mapping[bytes, bytes]) -> bool:
    # Inside a command of ours the agent is out of reach, and the call's parent is right here.
    return (
        sys.platform == "linux"
        and env.get(b"SUBSTRATE_AGENT", b"").lower() != b"off"
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
    """Whether a word speaks of a descriptor above 2, as `/dev/fd/63` or `<&3`."""
    for word in argv:
        if b"/fd/" in word:
            return True
        for after in word.replace(b">&", b"<&").split(b"<&")[1:]:
            first, second = after[:1], after[1:2]
            if first and (first in b'3456789$"' or (first in b"012" and second.isdigit())):
                return True
    return False


def names_job_server(env: Mapping[bytes, bytes]) -> bool:
    """Whether make or cargo say by which descriptors to ask for a job; a FIFO goes by its path."""
    for name in (b"MAKEFLAGS", b"CARGO_MAKEFLAGS"):
        for option in (b"--jobserver-auth=", b"--jobserver-fds="):
            if env.get(name, b"").partition(option)[2][:1].isdigit():
                return True
    return False


def has_more_descriptors() -> bool:
    """Besides 0, 1 and 2. Many callers leave some open that nobody uses: this alone says little."""
    for name in posix.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and posix.get_inheritable(int(name)):
                return True
        except OSError:  # what this list was read from
            continue
    return False


def install() -> bytes:
    """Which installation this is: two of them can have the same version."""
    return _encoded(substrate.__file__.rpartition("/")[0])


def _encoded(word: str) -> bytes:
    return word.encode(sys.getfilesystemencoding(), "surrogateescape")


def _converse(connection: _socket.socket, request: door.Request, socket: bytes) -> int | None:
    from substrate.protocol import door

    relay = _Relay(connection)
    started = False
    try:
        here = posix.open(".", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
        door.send_request(connection, request, (0, 1, 2, here))
        while True:
            kind, payload = door.receive_reply(connection)
            if kind == door.STARTED:
                started = True
                relay.runner = int(payload)
                relay.install()
            elif kind == door.DECLINED:
                if payload in (door.STALE, door.NEWER_CLIENT):
                    _start_agent(socket, payload)
                return None
            elif kind == door.EXITED:
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
    """Passes on the signals we get while the agent runs the command.

    Only from its start on: whoever is ended before has not started anything, and need not wait for
    an agent that does not answer; and a signal is not lost to one that declines.
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
        """Nobody records it any more; what it still did would be nobody's."""
        if self.runner <= 1:  # our own group, or everybody
            return
        try:
            posix.killpg(self.runner, _signal.SIGKILL)
        except OSError:
            pass

    def _stop_or_go_on(self, number: int) -> None:
        """A stopped process reads nothing: its group is stopped and continued from here."""
        stopping = number == _signal.SIGTSTP
        if self.runner > 1:
            try:
                posix.killpg(self.runner, _signal.SIGSTOP if stopping else _signal.SIGCONT)
            except OSError:
                pass
        if stopping:
            posix.kill(posix.getpid(), _signal.SIGSTOP)


def _start_agent(socket: bytes, reason: bytes) -> None:
    from substrate.client import autostart

    autostart.start(socket, replace=bool(reason))


def _say_fallback(socket: bytes, argv: Sequence[bytes]) -> None:
    from substrate.client import autostart

    autostart.say_fallback(socket, argv)
