"""A session's commands see each other's processes: they share a pid namespace.

No process exists only to keep it open. A command that leaves processes running also leaves its pid
namespace, with its first process; a later command of the session joins it instead of making one.
It has its own mounts, overlay and init there: only the processes are shared. If nothing is left of
earlier commands, there is nothing to see, and a command gets its own pid namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from substrate.system.process import process_tree


class PidSpace(NamedTuple):
    """A pid namespace with its user namespace, by inode; and which commands may share it."""

    #: Must be equal in two commands that share it: see `key_of`.
    key: str
    user_ns: int
    pid_ns: int
    #: Its first process, by its pid out here, and when it started. Everything ends with it.
    first: int
    first_start: str
    #: The token of the lock that it holds as long as it lives.
    alive: str = ""


class Entrance(NamedTuple):
    """Open descriptors of both namespaces."""

    space: PidSpace
    user_ns: int
    pid_ns: int

    def close(self) -> None:
        os.close(self.user_ns)
        os.close(self.pid_ns)


def key_of(session_id: str, tier: str, network: str, *, host_services: bool) -> str:
    """Commands with the same key share a pid namespace; empty: it is not shared.

    A process that sees another can do to it what its user can, and so use what that one has:
    both must have the same rights. From `guarded` on Landlock keeps commands from signalling each
    other, so sharing would be useless.
    """
    if not session_id or tier != "workspace":
        return ""
    return f"{session_id} {tier} {network} {'host' if host_services else 'apart'}"


def own_namespaces() -> tuple[int, int]:
    """The inodes of the user and the pid namespace that we are in."""
    return os.stat("/proc/self/ns/user").st_ino, os.stat("/proc/self/ns/pid").st_ino


def open_entrance(space: PidSpace, init_pid: int) -> Entrance | None:
    """Enter by any process in there: an init shows its namespaces to root alone."""
    for pid in _inhabitants(init_pid, space.first):
        with suppress(OSError):
            user = _open(pid, "user", space.user_ns)
            if user is None:
                continue
            pids = _open(pid, "pid", space.pid_ns)
            if pids is not None:
                return Entrance(space, user, pids)
            os.close(user)
    return None


def _inhabitants(*inits: int) -> Iterable[int]:
    yield from dict.fromkeys(inits)
    for init in dict.fromkeys(inits):
        yield from (process.pid for process in process_tree.descendants(init))


def _open(pid: int, kind: str, inode: int) -> int | None:
    """None if it is another namespace: a process may have entered its own."""
    fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    if os.fstat(fd).st_ino == inode:
        return fd
    os.close(fd)
    return None
