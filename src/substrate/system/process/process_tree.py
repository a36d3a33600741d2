"""The process tree: finding and ending everything a command left behind (POSIX)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from substrate.system import clock

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.01


class Process(NamedTuple):
    """A process and its start time, because another process may reuse the pid."""

    pid: int
    start: str


class _Row(NamedTuple):
    parent: int
    state: str
    start: str


def adopt_orphans(on: bool) -> bool:
    """On Linux: become the parent of our children's orphans, so that they can be found."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def descendants(pid: int) -> list[Process]:
    """Everything that `pid` started, directly or not, and that is still in its process tree."""
    table = _table()
    children: dict[int, list[int]] = {}
    for child, row in table.items():
        children.setdefault(row.parent, []).append(child)
    found, queue = [], list(children.get(pid, ()))
    while queue:
        child = queue.pop()
        queue.extend(children.get(child, ()))
        if table[child].state != "Z":
            found.append(Process(child, table[child].start))
    return found


def parent(pid: int) -> int:
    """The parent's pid; 0 if there is none, or no such process."""
    row = _row(pid)
    return 0 if row is None else row.parent


def is_stopped(pid: int) -> bool:
    row = _row(pid)
    return row is not None and row.state in ("T", "t")


def send(processes: Iterable[Process], signum: int) -> None:
    """Signal the processes whose pid has not been reused."""
    for process in processes:
        if _is_there(process):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signum)


def end_all(processes: list[Process], grace_s: float) -> None:
    """TERM, then KILL for those that still run after the grace period."""
    send(processes, signal.SIGTERM)
    send(processes, signal.SIGCONT)
    deadline = clock.monotonic_ns() + int(grace_s * 1e9)
    while any(_is_there(process) for process in processes):
        if clock.monotonic_ns() >= deadline:
            send(processes, signal.SIGKILL)
            return
        clock.sleep(_POLL_S)


def _is_there(process: Process) -> bool:
    row = _row(process.pid)
    return row is not None and row.state != "Z" and row.start == process.start


def _table() -> dict[int, _Row]:
    if not os.path.isdir("/proc/self"):
        return _ask_ps(["-A"])
    rows = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            row = _read_proc(int(name))
            if row is not None:
                rows[int(name)] = row
    return rows


def _row(pid: int) -> _Row | None:
    if os.path.isdir("/proc/self"):
        return _read_proc(pid)
    return _ask_ps(["-p", str(pid)]).get(pid)


def _read_proc(pid: int) -> _Row | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name is in parentheses and may contain anything: count from the last parenthesis.
    fields = text[text.rindex(b")") + 2 :].split()
    return _Row(int(fields[1]), fields[0].decode(), fields[19].decode())


def _ask_ps(which: list[str]) -> dict[int, _Row]:
    from substrate.errors import SubstrateError
    from substrate.system.process import process

    try:
        said = process.run(["ps", *which, "-o", "pid=,ppid=,state=,lstart="]).stdout
    except SubstrateError:
        return {}
    rows = {}
    for line in said.decode("ascii", "replace").splitlines():
        pid, parent, state, start = (*line.split(None, 3), "", "", "")[:4]
        if pid.isdigit() and parent.isdigit():
            rows[int(pid)] = _Row(int(parent), state[:1], start)
    return rows
