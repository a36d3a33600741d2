"""Namespaces: leaving the current ones, and the ids of a new user namespace."""

from __future__ import annotations

import os

from substrate.system.linux import syscalls

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000
NEWCGROUP = 0x02000000

_ALL_IDS = 4294967295


def unshare(flags: int) -> None:
    """Raises `OSError`: EPERM where namespaces are forbidden, ENOSPC at their limit."""
    syscalls.call("unshare", flags)


def setns(fd: int, kind: int = 0) -> None:
    syscalls.call("setns", fd, kind)


def in_initial_user_namespace() -> bool:
    """Whether root here is root everywhere: only that root may set ``trusted.`` attributes."""
    return _id_ranges("uid_map") == [(0, _ALL_IDS)]


def map_every_id(pid: int) -> None:
    """Map every user and group id to itself in the user namespace of `pid`. Run as root, outside.

    All ids, one to one, so that files keep their owners and `chown` works.
    """
    for name in ("uid_map", "gid_map"):
        lines = [f"{first} {first} {count}\n" for first, count in _id_ranges(name)]
        _write(f"/proc/{pid}/{name}", "".join(lines))


def _id_ranges(name: str) -> list[tuple[int, int]]:
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        return [(int(first), int(count)) for first, _, count in map(str.split, file)]


def map_own_id(uid: int, gid: int) -> None:
    """In a new user namespace, keep our own ids (`uid`, `gid`); no others exist there."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1\n")
    _write("/proc/self/gid_map", f"{gid} {gid} 1\n")


def _write(path: str, text: str) -> None:
    # One write: the kernel accepts a map only once and only as a whole.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
