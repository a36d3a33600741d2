r"""Asking the daemon's watcher what other processes changed: one packet each way.

    recorder                                       watcher
      Q root \0 $SUBSTRATE_HOME               ─▶
                                              ◀─   W generation \0 path \0 path …   only these
                                              ◀─   N why                            not known
      D generation                            ─▶   (the paths of the answer are recorded now)
      L root \0 $SUBSTRATE_HOME               ─▶   processes outlive their command in a world
                                              ◀─   L           their changes arrive by themselves
      K root, or P root (in passing)          ─▶
                                              ◀─   K token     the same while nothing happens
                                              ◀─   X           something happened (sent once)

A path with the prefix ``=`` is a directory whose own mode may have changed, nothing below it; any
other path has the prefix ``+``. Every command uses this module: it imports only what is already
loaded.
"""

from __future__ import annotations

import os

from substrate.system.daemon_paths import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

QUESTION, DONE, STATUS, REPORT, LEFT = b"Q", b"D", b"S", b"R", b"L"
WATCHED, NOT_WATCHED = b"W", b"N"
STILL, IN_PASSING, STIRRED = b"K", b"P", b"X"
#: A longer answer is not sent: the watcher records those changes by itself, a little later.
MOST_BYTES = 64 * 1024
#: A watcher that cannot run now must not delay a command.
PATIENCE_S = 0.01
#: Without this answer a view with a warm name cache is lost, so wait longer. And no command waits
#: for a question asked in passing.
STILL_PATIENCE_S, IN_PASSING_S = 0.1, 1.0


class Answer:
    """The watcher's answer; `done` reports back that the suspects are recorded."""

    __slots__ = ("_connection", "generation", "suspects", "why_not")

    def __init__(self, connection: _socket.socket | None, said: bytes) -> None:
        self._connection = connection
        self.generation = 0
        #: Path -> whether everything below it may have changed, too.
        self.suspects: dict[bytes, bool] = {}
        #: Empty, or why the changes are not known.
        self.why_not = ""
        if said[:1] != WATCHED:
            self.why_not = os.fsdecode(said[1:]) or "nobody watches"
            return
        number, *paths = said[1:].split(b"\0")
        self.generation = int(number)
        self.suspects = {path[1:]: path[:1] == b"+" for path in paths}

    def done(self) -> None:
        if self._connection is not None:
            try:
                self._connection.send(DONE + b"%d" % self.generation)
            except OSError:
                pass  # the watcher will check them again

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Question:
    """What other processes changed below `root`; from then on the watcher watches that root.

    The question is sent at once, and the answer fetched when it is needed: the watcher works in
    between.
    """

    __slots__ = ("_connection",)

    def __init__(
        self, socket: bytes, root: bytes, home: bytes, patience_s: float = PATIENCE_S
    ) -> None:
        self._connection: _socket.socket | None = None
        try:
            self._connection = connect(socket)
            self._connection.settimeout(patience_s)
            self._connection.send(QUESTION + root + b"\0" + home)
        except OSError:
            self.close()

    def answer(self) -> Answer:
        """Wait for the answer, which owns the connection from then on."""
        connection, self._connection = self._connection, None
        if connection is None:
            return Answer(None, b"")
        try:
            return Answer(connection, connection.recv(MOST_BYTES))
        except (OSError, ValueError):
            connection.close()
            return Answer(None, b"")

    def close(self) -> None:
        """The answer is not needed any more; harmless after it arrived."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class StillTree:
    """Whether anything happens in a tree. Can be asked repeatedly; `close` it."""

    def __init__(self, socket: bytes, root: bytes) -> None:
        self._root = root
        self._connection: _socket.socket | None = None
        try:
            self._connection = connect(socket)
        except OSError:
            pass

    def token(self, *, in_passing: bool = False) -> bytes:
        """A token that stays the same as long as nothing happens; empty if that is not known.

        `in_passing`: the watcher waits whether a new file disappears again; ask once more before
        you rely on the token.
        """
        if self._connection is None:
            return b""
        self._connection.settimeout(IN_PASSING_S if in_passing else STILL_PATIENCE_S)
        try:
            self._connection.send((IN_PASSING if in_passing else STILL) + self._root)
            said = self._connection.recv(MOST_BYTES)
        except OSError:
            said = b""
        if said[:1] != STILL:  # otherwise a late answer would be taken for the next question's
            self.close()
            return b""
        return said[1:]

    def fileno(self) -> int:
        """Readable when something has happened since; -1 if there is no watcher to report it."""
        return -1 if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def tell_left_running(socket: bytes, root: bytes, home: bytes) -> bool:
    """Tell the watcher that worlds at `root` outlive their commands; whether it collects them."""
    try:
        connection = connect(socket)
    except OSError:
        return False
    try:
        connection.settimeout(STILL_PATIENCE_S)
        connection.send(LEFT + root + b"\0" + home)
        return connection.recv(MOST_BYTES) == LEFT
    except OSError:
        return False
    finally:
        connection.close()


def tree_of(token: bytes) -> bytes:
    """The part of a token that does not change when files came and went again.

    It is enough for a view that no process has used in between.
    """
    return token.rpartition(b"/")[0]


def report(socket: bytes, patience_s: float) -> bytes:
    """The watcher's report about itself, as JSON; `OSError` if there is no watcher."""
    connection = connect(socket)
    try:
        connection.settimeout(patience_s)
        connection.send(STATUS)
        return connection.recv(MOST_BYTES).removeprefix(REPORT)
    finally:
        connection.close()


def connect(socket: bytes) -> _socket.socket:
    """Connect to the watcher; `OSError` if there is none, or if it belongs to another user."""
    import _socket

    kind = _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC
    connection = _socket.socket(_socket.AF_UNIX, kind)
    try:
        connection.settimeout(PATIENCE_S)
        with Address(socket) as address:
            connection.connect(address)
        if peer(connection)[1] != os.geteuid():
            raise PermissionError("the watcher belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection


def peer(connection: _socket.socket) -> tuple[int, int]:
    """The other side's process and user, as the kernel reports them."""
    import _socket
    import sys

    said = connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERCRED, 12)
    return int.from_bytes(said[:4], sys.byteorder), int.from_bytes(said[4:8], sys.byteorder)


_SO_PEERCRED = 17


def answer(generation: int, suspects: dict[bytes, bool]) -> bytes:
    """The answer as a packet; a `NOT_WATCHED` packet if there are too many suspects."""
    paths = [(b"+" if deep else b"=") + path for path, deep in suspects.items()]
    said = WATCHED + b"\0".join([b"%d" % generation, *paths])
    return said if len(said) <= MOST_BYTES else not_watched("many changes are being looked at")


def not_watched(why: str) -> bytes:
    return NOT_WATCHED + os.fsencode(why)
