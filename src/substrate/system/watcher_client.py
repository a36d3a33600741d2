r"""Asking the agent's watcher what others changed: one packet each way.

    recorder                                       watcher
      Q root \0 $SUBSTRATE_HOME               ─▶
                                              ◀─   W generation \0 path \0 path …   these, no more
                                              ◀─   N why                            not known
      D generation                            ─▶   (those of the answer are recorded now)
      K root, or P root (in passing)          ─▶
                                              ◀─   K token     the same while nothing happens
                                              ◀─   X           something has (said once)

A path that begins with ``=`` is a directory of which only its own mode is meant, any other begins
with ``+``. On the way of every command: nothing is imported that is not loaded already.
"""

from __future__ import annotations

import os

from substrate.system.agent_place import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

QUESTION, DONE, STATUS, REPORT = b"Q", b"D", b"S", b"R"
WATCHED, NOT_WATCHED = b"W", b"N"
STILL, IN_PASSING, STIRRED = b"K", b"P", b"X"
#: An answer that is longer is none: the watcher records those by itself, a little later.
MOST_BYTES = 64 * 1024
#: A watcher that is kept from running must not keep a command from running.
PATIENCE_S = 0.01
#: More is lost if this is not answered: a view in which everything has been looked up. And nobody
#: waits for what is asked in passing.
STILL_PATIENCE_S, IN_PASSING_S = 0.1, 1.0


class Answer:
    """What the watcher said; `done` tells it that the suspects are recorded."""

    __slots__ = ("_connection", "generation", "suspects", "why_not")

    def __init__(self, connection: _socket.socket | None, said: bytes) -> None:
        self._connection = connection
        self.generation = 0
        #: Path → whether all below it is meant, too.
        self.suspects: dict[bytes, bool] = {}
        #: Empty, or why it is not known what others changed.
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
                pass  # it will ask again what became of them

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Question:
    """What others changed below `root`; whoever asks is heard of, and watched from then on.

    It is asked at once, and the answer fetched when it is needed: the watcher thinks meanwhile.
    """

    __slots__ = ("_connection",)

    def __init__(self, socket: bytes, root: bytes, home: bytes) -> None:
        self._connection: _socket.socket | None = None
        try:
            self._connection = connect(socket)
            self._connection.send(QUESTION + root + b"\0" + home)
        except OSError:
            self.close()

    def answer(self) -> Answer:
        """Waits for it; the connection is the answer's from then on."""
        connection, self._connection = self._connection, None
        if connection is None:
            return Answer(None, b"")
        try:
            return Answer(connection, connection.recv(MOST_BYTES))
        except (OSError, ValueError):
            connection.close()
            return Answer(None, b"")

    def close(self) -> None:
        """Nobody wants to know any more; harmless once it is answered."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class StillTree:
    """Whether anything happens in a tree. Can be asked again; `close` it."""

    def __init__(self, socket: bytes, root: bytes) -> None:
        self._root = root
        self._connection: _socket.socket | None = None
        try:
            self._connection = connect(socket)
        except OSError:
            pass

    def token(self, *, in_passing: bool = False) -> bytes:
        """The same as long as nothing happens, as of now; empty if nobody knows.

        `in_passing`: a file that has just come is given time to go again; ask once more before
        you rely on it.
        """
        if self._connection is None:
            return b""
        self._connection.settimeout(IN_PASSING_S if in_passing else STILL_PATIENCE_S)
        try:
            self._connection.send((IN_PASSING if in_passing else STILL) + self._root)
            said = self._connection.recv(MOST_BYTES)
        except OSError:
            said = b""
        if said[:1] != STILL:  # or the next answer would be that to this question
            self.close()
            return b""
        return said[1:]

    def fileno(self) -> int:
        """Readable when something has happened since; -1 if nobody would tell."""
        return -1 if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def tree_of(token: bytes) -> bytes:
    """What of a token stays the same even if files came and went again: enough for a view through
    which nobody has looked in between."""
    return token.rpartition(b"/")[0]


def report(socket: bytes, patience_s: float) -> bytes:
    """What the watcher says about itself, as JSON; `OSError` if there is none."""
    connection = connect(socket)
    try:
        connection.settimeout(patience_s)
        connection.send(STATUS)
        return connection.recv(MOST_BYTES).removeprefix(REPORT)
    finally:
        connection.close()


def connect(socket: bytes) -> _socket.socket:
    """`OSError` if nobody is there, or somebody else."""
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
    """The other side's process and user, as the kernel knows them."""
    import _socket
    import sys

    said = connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERCRED, 12)
    return int.from_bytes(said[:4], sys.byteorder), int.from_bytes(said[4:8], sys.byteorder)


_SO_PEERCRED = 17


def answer(generation: int, suspects: dict[bytes, bool]) -> bytes:
    """As a packet; a `NOT_WATCHED` one if there are too many."""
    paths = [(b"+" if deep else b"=") + path for path, deep in suspects.items()]
    said = WATCHED + b"\0".join([b"%d" % generation, *paths])
    return said if len(said) <= MOST_BYTES else not_watched("many changes are being looked at")


def not_watched(why: str) -> bytes:
    return NOT_WATCHED + os.fsencode(why)
