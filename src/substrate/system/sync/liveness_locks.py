"""Locks that show that a process is alive, to processes that cannot see its pid.

A process locks one byte of ``PLACE/running`` and records which one: its token. The kernel releases
the byte when the process ends, however it ends. Every process that opens the same file sees the
lock, whatever pid namespace, container or sandbox it is in. Another kernel does not see it: a VM's
share or NFS.

The locks belong to open file descriptions. One file serves every holder, closing another descriptor
of it releases nothing, and a forked child gives up only its copy. Where the system has no such
locks, a token is empty, and the caller has to use the pid.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.system.process import process_identity

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]

NAME = "running"
_CAN_LOCK = hasattr(fcntl, "F_OFD_SETLK")  # Linux
_TOKEN_BYTES = 7  # an offset in a file has at most 63 bits
_DIGITS = frozenset("0123456789abcdef")
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Handle(NamedTuple):
    """A token with its own descriptor: any process with a copy of the descriptor holds the lock."""

    token: str
    fd: int

    def close(self) -> None:
        """Close our copy; closing the last copy releases the lock."""
        if self.fd in _handles:
            _handles.discard(self.fd)
            os.close(self.fd)


class _Opened(NamedTuple):
    fd: int
    device: int
    inode: int


#: This process's descriptors of the lock files, and the tokens it holds through them.
_opened: dict[Path, _Opened] = {}
_held: set[tuple[Path, str]] = set()
_own_token: list[str] = []
#: Descriptors of handles that are not closed yet.
_handles: set[int] = set()


def hold(place: Path) -> str:
    """Take a lock in `place` and return its token; empty if no lock is possible there."""
    token = _new_token()
    return token if _hold(place, token, os.O_CREAT) else ""


def own(place: Path) -> str:
    """The token that this process holds as long as it lives, the same one in every place.

    Empty if no lock is possible there. This does not create the file, because the user may be
    removing the project: `ensure` does, while a command runs.
    """
    if not _own_token:
        _own_token.append(_new_token())
    token = _own_token[0]
    if (place, token) in _held and _is_in_place(place):
        return token
    return token if _hold(place, token, 0) else ""


def release(place: Path, token: str) -> None:
    """Release what `hold` took; harmless if it is free."""
    opened = _opened.get(place)
    if token and opened is not None and (place, token) in _held:
        _held.discard((place, token))
        if any(one[0] == place for one in _held):
            _set(opened.fd, token, locked=False)
        else:  # an open file would keep the file system busy
            del _opened[place]
            os.close(opened.fd)


def handle(place: Path) -> Handle:
    """A lock to hand to another process; if there is none, the token is empty and `fd` is -1."""
    token = _new_token()
    try:
        fd = _open(place, os.O_CREAT)
    except OSError:
        return Handle("", -1)
    if _set(fd, token, locked=True):
        _handles.add(fd)
        return Handle(token, fd)
    os.close(fd)
    return Handle("", -1)


def is_held(place: Path, token: str) -> bool:
    """Whether a living process holds that token in `place`."""
    if not token or not _CAN_LOCK:
        return False
    if (place, token) in _held:
        return True
    try:
        fd = os.open(place / NAME, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        asked = _lock(fcntl.F_WRLCK, token)
        said = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    except (OSError, ValueError):
        return False
    finally:
        os.close(fd)
    return bool(_kind(said) != fcntl.F_UNLCK)


def ensure(place: Path) -> None:
    """Create the file if it is missing: `own` needs it, and every world masks it."""
    if not os.path.lexists(place / NAME):
        with suppress(OSError):
            os.close(_open(place, os.O_CREAT))


def _hold(place: Path, token: str, creates: int) -> bool:
    opened = _opened.get(place)
    try:
        if opened is None or not _is_in_place(place):
            opened = _keep_open(place, creates)
    except OSError:
        return False
    if not _set(opened.fd, token, locked=True):
        return False
    _held.add((place, token))
    return True


def _keep_open(place: Path, creates: int) -> _Opened:
    """Open the file again: it is another one if the store was removed and made again."""
    fd = _open(place, creates)
    found = os.fstat(fd)
    stale, _opened[place] = _opened.get(place), _Opened(fd, found.st_dev, found.st_ino)
    if stale is not None:
        os.close(stale.fd)
        _held.difference_update({one for one in _held if one[0] == place})
    return _opened[place]


def _is_in_place(place: Path) -> bool:
    opened = _opened.get(place)
    try:
        found = os.stat(place / NAME, follow_symlinks=False)
    except OSError:
        return False
    return opened is not None and opened[1:] == (found.st_dev, found.st_ino)


def _open(place: Path, creates: int) -> int:
    """`creates`: ``os.O_CREAT``, or 0."""
    return os.open(place / NAME, os.O_RDWR | creates | _FLAGS, 0o600)


def _set(fd: int, token: str, *, locked: bool) -> bool:
    if not _CAN_LOCK:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK if locked else fcntl.F_UNLCK, token))
    except OSError:
        return False
    return True


def _lock(kind: int, token: str) -> bytes:
    """A ``struct flock`` for the token's one byte."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, int(token, 16), 1, 0)


def _kind(lock: bytes) -> int:
    kind: int = struct.unpack_from("h", lock)[0]
    return kind


def mark(place: Path) -> str:
    """A name prefix for something that belongs to this process.

    It holds the pid, for people, and the process's token in `place`.
    """
    token = own(place)
    return f"{os.getpid()}-{token}" if token else str(os.getpid())


def is_marked_alive(place: Path, name: str) -> bool:
    """Whether the process is alive whose `mark` is the prefix of `name`.

    Names without a token come from older versions, or from systems without locks: the pid decides.
    """
    pid, _, rest = name.partition("-")
    token = rest.partition("-")[0]
    if is_token(token):
        return is_held(place, token)
    return pid.isdecimal() and process_identity.pid_alive(int(pid))


def is_token(text: str) -> bool:
    """Whether `text` looks like a token; a pid and a start time are shorter."""
    return len(text) == 2 * _TOKEN_BYTES and set(text) <= _DIGITS


def _new_token() -> str:
    return os.urandom(_TOKEN_BYTES).hex()


def let_go() -> None:
    """Close every lock file of ours.

    A forked child does so at once: it is not the process that runs the command, may outlive it, and
    must leave the locks to its parent.
    """
    for fd in (*(opened.fd for opened in _opened.values()), *_handles):
        os.close(fd)
    _handles.clear()
    _opened.clear()
    _held.clear()
    _own_token.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=let_go)
