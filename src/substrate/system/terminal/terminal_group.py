"""Which process group has the terminal, and when we may take it back (POSIX)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from substrate.system.process import process_tree


def is_ours(fd: int) -> bool:
    """Whether our process group has the terminal: not so after Ctrl-Z and ``bg``."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def take_back(fd: int) -> None:
    """Give the terminal to our group, if a shell below us had it and could not return it.

    A shell in another pid namespace cannot name our group, and a killed shell did not return the
    terminal. If a group from outside has it (the user's shell, after Ctrl-Z and ``bg``, or ``kill
    %1``), it keeps the terminal: an interactive shell that loses it exits.
    """
    try:
        group = os.tcgetpgrp(fd)
        if group == os.getpgrp() or not _is_below_us(group):
            return
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with suppress(OSError):
            os.tcsetpgrp(fd, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    except OSError:  # the terminal no longer exists
        pass


def _is_below_us(group: int) -> bool:
    """Whether no process from outside is in the group. The group may be empty."""
    return all(_is_process_below(pid) for pid in _members(group))


def _members(group: int) -> list[int]:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        pass
    if _group_of(group) == group:  # most groups still have their leader
        return [group]
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit() and _group_of(int(name)) == group]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _is_process_below(pid: int) -> bool:
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return True
    above = pid
    while above > 1:
        if above == os.getpid():
            return True
        above = process_tree.parent(above)
    return False
