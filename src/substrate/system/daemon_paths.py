"""Where to reach the daemon: its sockets, its lock, and whether they can be trusted.

The thin client imports this module, so it imports only what the interpreter has already loaded:
`posix` instead of `os`, and the raw environment (bytes), because `system/environment.py` would
import `pathlib`.

    /run/substrate.sock         HTTP, for root; else $SUBSTRATE_HOME/run/substrate.sock
    /run/substrate.agent/       mode 0700
        door.sock               the command line connects here
        watch.sock              the process that watches the workspaces answers here
        lock  state.json  log
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import stat
    from collections.abc import Mapping
else:
    import _stat as stat

if sys.platform == "win32":
    import os
else:
    import posix as os

#: The capacity of sockaddr_un's path, including the final NUL.
_LONGEST_ADDRESS = 108
_SO_PEERCRED = 17


def variables() -> Mapping[bytes, bytes]:
    """The environment as the kernel gave it; `os.environb` is a copy of the same."""
    import posix

    return posix.environ


def forget_coerced_locale() -> None:
    """Remove the LC_CTYPE that Python adds in a C locale: commands must not inherit it (Linux)."""
    import posix

    if posix.environ.get(b"LC_CTYPE") != b"C.UTF-8":
        return
    with open("/proc/self/environ", "rb") as given:
        if b"\0LC_CTYPE=" in b"\0" + given.read():
            return
    del posix.environ[b"LC_CTYPE"]
    posix.unsetenv(b"LC_CTYPE")
    if "os" in sys.modules:  # `os` has a copy of the environment
        from substrate.system import environment

        environment.forget("LC_CTYPE")


def socket_path(env: Mapping[bytes, bytes]) -> bytes | None:
    """Where the daemon serves HTTP; None if there is no home directory to put it in."""
    named = env.get(b"SUBSTRATE_SOCKET")
    if named:
        return _absolute(named)
    if os.geteuid() == 0:
        return b"/run/substrate.sock"
    home = env.get(b"SUBSTRATE_HOME")
    if not home:
        above = env.get(b"HOME")
        if not above or not above.startswith(b"/"):
            return None
        home = above + b"/.substrate"
    return _absolute(home) + b"/run/substrate.sock"


def _absolute(path: bytes) -> bytes:
    if path.startswith(b"/") and not any(odd in path + b"/" for odd in (b"//", b"/./", b"/../")):
        return path
    import posixpath  # imports `os`

    return posixpath.abspath(path)


def directory(socket: bytes) -> bytes:
    """The directory beside the socket that holds the daemon's other files."""
    return socket.removesuffix(b".sock") + b".agent"


def door(directory: bytes) -> bytes:
    return directory + b"/door.sock"


def watch(directory: bytes) -> bytes:
    return directory + b"/watch.sock"


def is_ours(directory: bytes) -> bool:
    """A real directory that only we can write to, so no other user can have put a socket there."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


class Address:
    """A socket's address that fits sockaddr_un however long its path is: use it with `with`."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> bytes:
        if len(self._path) < _LONGEST_ADDRESS or sys.platform != "linux":
            return self._path
        above, _, name = self._path.rpartition(b"/")
        self._fd = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return b"/proc/self/fd/%d/%s" % (self._fd, name)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def connect(path: bytes) -> _socket.socket:
    """A connection to the door; `OSError` if nothing answers, or another user's process does."""
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        with Address(path) as address:
            connection.connect(address)
        if peer(connection)[1] != os.geteuid():
            raise PermissionError("the daemon belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection


def peer(connection: _socket.socket) -> tuple[int, int, int]:
    """The other side's process, user and group, as the kernel knows them (Linux)."""
    import _socket

    said = connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(said[at : at + 4], sys.byteorder) for at in (0, 4, 8))
    return pid, uid, gid
