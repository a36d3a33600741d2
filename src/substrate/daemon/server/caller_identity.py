"""Checks the caller: we serve only a process whose command we can run exactly as it would.

The same user is not enough. A caller in a sandbox (fewer capabilities, a seccomp filter, other
namespaces) could escape from it through us, and its command would see a different machine. The
daemon declines such a caller, which then runs the command in its own process.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from substrate.system.files import files

_NAMESPACES = ("mnt", "net", "pid_for_children", "user", "ipc", "uts", "cgroup")
#: The lines of /proc/PID/status with the rights of a process.
_RIGHTS = (
    *(b"Uid:", b"Gid:", b"Groups:", b"CapInh:", b"CapPrm:", b"CapEff:", b"CapBnd:", b"CapAmb:"),
    *(b"NoNewPrivs:", b"Seccomp:", b"Seccomp_filters:"),
)


class Standing(NamedTuple):
    """What decides how the kernel treats a process."""

    rights: tuple[bytes, ...]
    namespaces: tuple[str, ...]
    root: str
    #: Signals that it ignores, as a mask: its command would ignore them, too.
    ignored_signals: int
    #: Signals that it blocks: its command would block them, too. (The client itself blocks none.)
    blocked_signals: int


def standing(pid: int) -> Standing:
    """`OSError` if the process is gone, or hidden from us."""
    lines = files.read_kernel_file(f"/proc/{pid}/status").splitlines()
    rights = tuple(line for line in lines if line.startswith(_RIGHTS))
    ignored, blocked = _signals(lines, b"SigIgn:"), _signals(lines, b"SigBlk:")
    namespaces = tuple(_link(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES)
    return Standing(rights, namespaces, os.readlink(f"/proc/{pid}/root"), ignored, blocked)


def _signals(lines: list[bytes], name: bytes) -> int:
    line = next((line for line in lines if line.startswith(name)), b"none 0")
    return int(line.split()[1], 16)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a kernel without this namespace
        return ""


def differs(mine: Standing, theirs: Standing) -> str:
    """Why we cannot run commands in their place; empty if we can."""
    if mine.rights != theirs.rights:
        return "other rights"
    if mine.namespaces != theirs.namespaces or mine.root != theirs.root:
        return "other namespaces"
    return ""


class Limits(NamedTuple):
    """What a process may use of the machine."""

    resources: tuple[tuple[int, int], ...]
    nice: int
    processors: frozenset[int]


def limits(pid: int) -> Limits:
    """Resource limits, niceness and processors; `OSError` if we may not ask for them."""
    import resource

    return Limits(
        tuple(resource.prlimit(pid, which) for which in _resources()),
        os.getpriority(os.PRIO_PROCESS, pid),
        frozenset(os.sched_getaffinity(pid)),
    )


def take_limits(wanted: Limits) -> bool:
    """Make them ours. False if we may not, or if memory is limited: we use more of it than a
    process that has just started."""
    import resource

    for memory in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        room, _ = wanted.resources[_resources().index(memory)]
        if room != resource.RLIM_INFINITY:
            return False
    try:
        for which, bounds in zip(_resources(), wanted.resources, strict=True):
            if resource.getrlimit(which) != bounds:
                resource.setrlimit(which, bounds)
        if os.getpriority(os.PRIO_PROCESS, 0) != wanted.nice:
            os.setpriority(os.PRIO_PROCESS, 0, wanted.nice)
        if os.sched_getaffinity(0) != wanted.processors:
            os.sched_setaffinity(0, wanted.processors)
    except (OSError, ValueError):
        return False
    return True


@cache
def _resources() -> tuple[int, ...]:
    import resource

    return tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
