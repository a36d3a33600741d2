"""One agent per socket: who may serve, and how one gives way to the next.

The lock is held for life, by the kernel, so that a killed agent leaves none behind. Only its
holder touches the sockets. A socket is bound under another name and renamed: whoever connects
meets the old agent or the new one, never nobody.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

from substrate.errors import LockedError, RefusedError, SubstrateError
from substrate.protocol import door
from substrate.system import agent_place, clock, files
from substrate.system.environment import Environment

_HANDOVER_S = 10.0
_BACKLOG = 128


def socket_of(environment: Environment) -> Path:
    """Where this user's agent serves, or will."""
    path = agent_place.socket_path(
        {os.fsencode(name): os.fsencode(value) for name, value in environment.variables.items()}
    )
    if path is not None:
        return Path(os.fsdecode(path))
    return environment.substrate_home / "run" / "substrate.sock"


class Home:
    """The agent's directory, sockets and lock."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.directory = Path(os.fsdecode(agent_place.directory(os.fsencode(socket_path))))
        self.door_path = self.directory / "door.sock"
        self.watch_path = Path(os.fsdecode(agent_place.watch(os.fsencode(self.directory))))
        self.state_path = self.directory / "state.json"
        self._lock: int | None = None

    def take(self, *, replace: bool) -> None:
        """Become the agent, or raise `LockedError`; with `replace` the present one has to go."""
        self._make_directories()
        if self._try_lock():
            return
        if not replace:
            raise LockedError(
                f"an agent already serves {self.socket_path}",
                hint="substrate agent status; --replace takes its place",
            )
        self._ask_to_stop()
        deadline = clock.monotonic_ns() + int(_HANDOVER_S * 1e9)
        while not self._try_lock():
            if clock.monotonic_ns() > deadline:
                raise LockedError("the present agent does not end", hint="substrate agent stop")
            clock.sleep(0.02)

    def _make_directories(self) -> None:
        above = self.socket_path.parent
        if not above.exists():
            above.mkdir(mode=0o700, parents=True, exist_ok=True)  # others may be at it
        try:
            self.directory.mkdir(mode=0o700)
        except FileExistsError:
            pass
        self.require_ours()

    def require_ours(self) -> None:
        """`RefusedError` where others may have put something into the agent's directory."""
        if not agent_place.is_ours(os.fsencode(self.directory)):
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
            pass  # it is going already, or hangs: the lock will tell

    def listen(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        """The door, the HTTP socket and the watcher's, all listening, mode 0600."""
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
        # Until now a call that found no agent knew that one was on its way.
        (self.directory / "start").unlink(missing_ok=True)

    def leave(self) -> None:
        """Take the sockets away and let the next one in."""
        for path in (self.door_path, self.socket_path, self.watch_path, self.state_path):
            path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close_in_child(self) -> None:
        """A forked child must not hold the lock when the agent is gone."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _bind(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    umask = os.umask(0o177)
    try:
        with agent_place.Address(os.fsencode(aside)) as address:
            listener.bind(address)
        listener.listen(_BACKLOG)
        os.replace(aside, path)
    except OSError as error:
        listener.close()
        aside.unlink(missing_ok=True)
        raise SubstrateError(
            f"the agent cannot serve at {path}: {error.strerror}",
            hint="name another place with SUBSTRATE_SOCKET",
        ) from error
    finally:
        os.umask(umask)
    listener.setblocking(False)
    return listener


def ask(door_path: Path, kind: bytes) -> bytes:
    """A question to the agent at `door_path`; `OSError` or `EOFError` if nobody answers."""
    if not agent_place.is_ours(os.fsencode(door_path.parent)):
        raise FileNotFoundError(f"no agent at {door_path}")
    null = os.open(os.devnull, os.O_RDWR)
    connection = agent_place.connect(os.fsencode(door_path))
    try:
        connection.settimeout(door.PATIENCE_S)
        request = door.Request(kind, [], [], version=b"", install=b"")
        door.send_request(connection, request, (null, null, null, null))
        return door.receive_reply(connection)[1]
    finally:
        connection.close()
        os.close(null)
