"""What ``/proc`` says about a command's processes, which may end at any time."""

from __future__ import annotations

import os
from typing import NamedTuple


def group_of(tid: int) -> int:
    """The process that a thread belongs to; 0 if it is gone."""
    return _status_number(tid, b"Tgid:")


class View(NamedTuple):
    """Which files and which network a process sees; zeros if it is gone."""

    network: int
    mounts: int
    root: tuple[int, int]


#: The view of a process that has ended or that we cannot look into.
UNREADABLE = View(0, 0, (0, 0))


def view_of(pid: int) -> View:
    try:
        network, mounts = (os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in ("net", "mnt"))
        root = os.stat(f"/proc/{pid}/root")
    except OSError:
        return UNREADABLE
    return View(network, mounts, (root.st_dev, root.st_ino))


def parent(pid: int) -> int:
    """0 if it is gone."""
    return _status_number(pid, b"PPid:")


def program(pid: int) -> tuple[str, bytes]:
    """The file and the arguments: a child that started another program has others."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return os.readlink(f"/proc/{pid}/exe"), file.read(4096)
    except OSError:
        return "", b""


def descriptor_flags(pid: int, descriptor: int) -> int | None:
    """The flags it was opened with, close-on-exec among them."""
    try:
        with open(f"/proc/{pid}/fdinfo/{descriptor}", "rb") as file:
            for line in file:
                if line.startswith(b"flags:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None


def in_epoll(pid: int, descriptor: int) -> bool:
    """Whether an epoll set of the process holds the descriptor: it would lose a replaced one."""
    wanted = b"tfd: %8d " % descriptor
    try:
        for entry in os.listdir(f"/proc/{pid}/fdinfo"):
            with open(f"/proc/{pid}/fdinfo/{entry}", "rb") as file:
                if wanted in file.read(65536):
                    return True
    except OSError:
        return True
    return False


def datagrams_sent(pid: int) -> int:
    """By all processes in its network: if it has not changed, this process sent none."""
    sent = 0
    try:
        with open(f"/proc/{pid}/net/snmp", "rb") as file:
            rows = [line.split() for line in file if line.startswith(b"Udp:")]
        sent = int(rows[1][rows[0].index(b"OutDatagrams")])
        with open(f"/proc/{pid}/net/snmp6", "rb") as file:
            for line in file:
                if line.startswith(b"Udp6OutDatagrams"):
                    sent += int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return sent


def socket_inode(pid: int, descriptor: int) -> int:
    """The inode of the descriptor's socket; 0 if it is closed."""
    try:
        return os.stat(f"/proc/{pid}/fd/{descriptor}").st_ino
    except OSError:
        return 0


def _status_number(pid: int, field: bytes) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            status = file.read(1024)
    except OSError:
        return 0
    at = status.find(b"\n" + field)
    if at < 0:
        return 0
    return int(status[at + 1 + len(field) :].split(None, 1)[0])
