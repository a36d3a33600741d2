"""One daemon per socket: which process may serve, and how one hands over to the next.

The daemon holds a kernel lock for its whole life, so a killed daemon leaves no lock behind. Only
the holder changes the sockets. A socket is bound under another name and renamed, so a caller
always reaches the old daemon or the new one.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

from substrate.errors import LockedError, RefusedError, SubstrateError
from substrate.protocol import daemon_wire
from substrate.system import Environment, clock, daemon_paths
from substrate.system.files import files

_HANDOVER_S = 10.0
_BACKLOG = 128


def socket_of(environment: Environment) -> Path:
    """The path where this user's daemon serves, or will serve."""
    path = daemon_paths.socket_path(
        {os.fsencode(name): os.fsencode(value) for name, value in environment.variables.items()}
    )
    if path is not None:
        return Path(os.fsdecode(path))
    return environment.substrate_home / "run" / "substrate.sock"


class Home:
    """The daemon's directory, sockets and lock."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.directory = Path(os.fsdecode(daemon_paths.directory(os.fsencode(socket_path))))
        self.door_path = self.directory / "door.sock"
        self.watch_path = Path(os.fsdecode(daemon_paths.watch(os.fsencode(self.directory))))
        self.state_path = self.directory / "state.json"
        self._lock: int | None = None

    def take(self, *, replace: bool) -> None:
        """Become the daemon, or raise `LockedError`; with `replace` the present one must stop."""
        self._make_directories()
        if self._try_lock():
            return
        if not replace:
            raise LockedError(
                f"a daemon already serves {self.socket_path}",
                hint="substrate daemon status; --replace takes its place",
            )
        self._ask_to_stop()
        deadline = clock.monotonic_ns() + int(_HANDOVER_S * 1e9)
        while not self._try_lock():
            if clock.monotonic_ns() > deadline:
                raise LockedError("the present daemon does not end", hint="substrate daemon stop")
            clock.sleep(0.02)

    def _make_directories(self) -> None:
        above = self.socket_path.parent
        if not above.exists():
            above.mkdir(mode=0o700, parents=True, exist_ok=True)  # another process may create it
        try:
            self.directory.mkdir(mode=0o700)
        except FileExistsError:
            pass
        self.require_ours()

    def require_ours(self) -> None:
        """`RefusedError` if other users could have put something into the daemon's directory."""
        if not daemon_paths.is_ours(os.fsencode(self.directory)):
            raise RefusedError(
                f"{self.directory} is not a directory that is ours alone",
                hint="chmod 700 it, remove it, or name another socket with SUBSTRATE_SOCKET",
            )

    def _try_lock(self) -> bool:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.directory / "lock", flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    def _ask_to_stop(self) -> None:
        try:
            ask(self.door_path, b"stop")
        except (OSError, EOFError):
            pass  # it is stopping already, or hangs: the lock will show

    def listen(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        """The door socket, the HTTP socket and the watcher's, all listening, mode 0600."""
        self._refuse_foreign(self.socket_path)
        watch = _bind(self.watch_path, socket.SOCK_SEQPACKET)
        return _bind(self.door_path), _bind(self.socket_path), watch

    def _refuse_foreign(self, path: Path) -> None:
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise RefusedError(
                f"{path} is there already, and is no socket of ours",
                hint="remove it, or name another place with SUBSTRATE_SOCKET",
            )

    def write_state(self, state: dict[str, object]) -> None:
        files.write_atomic(self.state_path, json.dumps(state).encode() + b"\n", durable=False)
        # Until now this file told calls that found no daemon that one was starting.
        (self.directory / "start").unlink(missing_ok=True)

    def leave(self) -> None:
        """Remove the sockets and let the next daemon start."""
        for path in (self.door_path, self.socket_path, self.watch_path, self.state_path):
            path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close_in_child(self) -> None:
        """A forked child must not hold the lock after the daemon has ended."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _bind(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    umask = os.umask(0o177)
    try:
        with daemon_paths.Address(os.fsencode(aside)) as address:
            listener.bind(address)
        listener.listen(_BACKLOG)
        os.replace(aside, path)
    except OSError as error:
        listener.close()
        aside.unlink(missing_ok=True)
        raise SubstrateError(
            f"the daemon cannot serve at {path}: {error.strerror}",
            hint="name another place with SUBSTRATE_SOCKET",
        ) from error
    finally:
        os.umask(umask)
    listener.setblocking(False)
    return listener


def ask(door_path: Path, kind: bytes) -> bytes:
    """Ask the daemon at `door_path`; `OSError` or `EOFError` if there is no answer."""
    if not daemon_paths.is_ours(os.fsencode(door_path.parent)):
        raise FileNotFoundError(f"no daemon at {door_path}")
    null = os.open(os.devnull, os.O_RDWR)
    connection = daemon_paths.connect(os.fsencode(door_path))
    try:
        connection.settimeout(daemon_wire.PATIENCE_S)
        request = daemon_wire.Request(kind, [], [], version=b"", install=b"")
        daemon_wire.send_request(connection, request, (null, null, null, null))
        return daemon_wire.receive_reply(connection)[1]
    finally:
        connection.close()
        os.close(null)
