"""Who is at the door: served is only a process for which we can stand in exactly.

The same user is not enough. A caller in a sandbox (fewer capabilities, a seccomp filter, other
namespaces) would get out of it through us, and its command would see another machine than it
does. Such a caller is told to run the command in its own process.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_NAMESPACES = ("mnt", "net", "pid_for_children", "user", "ipc", "uts", "cgroup")
#: Lines of /proc/PID/status that say what a process may do.
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


def standing(pid: int) -> Standing:
    """`OSError` if the process is gone, or hidden from us."""
    with open(f"/proc/{pid}/status", "rb") as file:
        lines = file.read().splitlines()
    rights = tuple(line for line in lines if line.startswith(_RIGHTS))
    ignored = next((line for line in lines if line.startswith(b"SigIgn:")), b"SigIgn: 0")
    namespaces = tuple(_link(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES)
    return Standing(
        rights, namespaces, os.readlink(f"/proc/{pid}/root"), int(ignored.split()[1], 16)
    )


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a kernel without this namespace
        return ""


def differs(mine: Standing, theirs: Standing) -> str:
    """Why we cannot stand in for them; empty if we can."""
    if mine.rights != theirs.rights:
        return "other rights"
    if mine.namespaces != theirs.namespaces or mine.root != theirs.root:
        return "other namespaces"
    return ""


def take_limits(pid: int) -> bool:
    """Take over resource limits, niceness and processors; False if we may not."""
    import resource

    try:
        for name in dir(resource):
            if name.startswith("RLIMIT_"):
                which = getattr(resource, name)
                wanted = resource.prlimit(pid, which)
                if resource.getrlimit(which) != wanted:
                    resource.setrlimit(which, wanted)
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        if os.getpriority(os.PRIO_PROCESS, 0) != nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        processors = os.sched_getaffinity(pid)
        if os.sched_getaffinity(0) != processors:
            os.sched_setaffinity(0, processors)
    except (OSError, ValueError):
        return False
    return True
