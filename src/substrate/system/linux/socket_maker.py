"""Sockets from a separate network namespace, for a process that cannot enter one.

A process with threads may not join a user namespace, and an ordinary user may not make a network
namespace without one. A small process does it instead and passes the sockets out.
"""

from __future__ import annotations

import os
import socket

from substrate.errors import MissingDependencyError
from substrate.system.linux import netns
from substrate.system.process import spawn_script

_CHANNEL = 3
_START_TIMEOUT_S = 10.0
_BYTES = {kind: letter for letter, kind in netns.KINDS.items()}


class SocketMaker:
    """In its namespace every address is on ``lo``; `resolvers` listen on port 53 of all of them."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._pid = 0
        self.resolvers: list[socket.socket] = []
        try:
            self._pid = spawn_script(netns.__file__, theirs.fileno(), _CHANNEL, quiet=(2,))
            theirs.close()
            self._channel.settimeout(_START_TIMEOUT_S)
            word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 8)
            self.resolvers = [socket.socket(fileno=each) for each in descriptors]
            if word != b"R" or not self.resolvers:
                raise MissingDependencyError("no network namespace could be made")
        except (OSError, MissingDependencyError) as error:
            theirs.close()
            self.close()
            raise MissingDependencyError(f"no network namespace could be made: {error}") from error

    def make(self, family: int, kind: int) -> socket.socket | None:
        """A socket of that kind, bound to a free port."""
        letter = _BYTES.get((socket.AddressFamily(family), socket.SocketKind(kind)))
        if letter is None:
            return None
        try:
            self._channel.send(letter)
            word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        except OSError:
            return None
        made = [socket.socket(fileno=each) for each in descriptors]
        return made[0] if word == b"S" and made else None

    def close(self) -> None:
        self._channel.close()
        for each in self.resolvers:
            each.close()
        if self._pid:
            try:
                os.waitpid(self._pid, 0)
            except ChildProcessError:
                pass
            self._pid = 0
