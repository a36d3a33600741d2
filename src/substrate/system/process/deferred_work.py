"""Work that no caller waits for: done at once or, in a process that postpones it, after the answer.

Postponed work must be safe to leave undone: a kill may come first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_NICENESS = 10


class Closable(Protocol):
    def close(self) -> None: ...


class _Later:
    """What this process does after its answer."""

    __slots__ = ("clearing", "is_postponing", "left_open", "waiting")

    def __init__(self) -> None:
        self.is_postponing = False
        self.waiting: list[Callable[[], object]] = []
        #: Work that the next command does not depend on.
        self.clearing: list[Callable[[], object]] = []
        self.left_open: list[Closable] = []


_later = _Later()


def postpone() -> None:
    """From now on, `do` keeps the work for `run`."""
    _later.is_postponing = True


def do(work: Callable[[], object]) -> None:
    """Do the work now, or later in order of arrival."""
    if _later.is_postponing:
        _later.waiting.append(work)
    else:
        work()


def clear(work: Callable[[], object]) -> None:
    """The same for cleanup with no deadline: it runs last, at low priority."""
    if _later.is_postponing:
        _later.clearing.append(work)
    else:
        work()


def run() -> None:
    """Do the postponed work. An error in one piece does not stop the rest: all was optional."""
    _do_all(_later.waiting)


def run_clearing() -> None:
    """Do the cleanup that is left after `run`, at a lower priority than the next command."""
    if _later.clearing:
        with suppress(OSError):  # a sandbox may forbid it: clean up anyway
            os.nice(_NICENESS)
        _do_all(_later.clearing)


def _do_all(works: list[Callable[[], object]]) -> None:
    while works:
        try:
            works.pop(0)()
        except Exception:  # noqa: BLE001  the answer is sent: there is no caller to report to
            continue


def forget() -> None:
    """In a forked child: leave the postponed work to the parent; do new work at once."""
    _later.is_postponing = False
    _later.waiting.clear()
    _later.clearing.clear()


def is_postponing() -> bool:
    """Whether this process answers, does the postponed work, and ends with ``os._exit``."""
    return _later.is_postponing


def leave_open(thing: Closable) -> None:
    """Keep `thing` from being closed by the garbage collector: the process's exit does that."""
    _later.left_open.append(thing)


def close_left_open() -> None:
    """For the rare case that those things must be closed."""
    while _later.left_open:
        _later.left_open.pop().close()
