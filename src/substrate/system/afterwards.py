"""Work that nobody waits for: done at once, or, in a process that postpones it, after the answer.

What is postponed must be safe to leave undone: a kill may come first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_NICENESS = 10


class Closable(Protocol):
    def close(self) -> None: ...


_waiting: list[Callable[[], object]] | None = None
#: What does not matter to whoever comes next.
_clearing: list[Callable[[], object]] = []
_left_open: list[Closable] = []


def postpone() -> None:
    """From now on `do` keeps the work for `run`."""
    global _waiting
    if _waiting is None:
        _waiting = []


def do(work: Callable[[], object]) -> None:
    """Do it now, or later in the order in which it came."""
    if _waiting is None:
        work()
    else:
        _waiting.append(work)


def clear(work: Callable[[], object]) -> None:
    """The same for what only has to be gone some time: it comes last, and gives way to others."""
    if _waiting is None:
        work()
    else:
        _clearing.append(work)


def run() -> None:
    """Do what was postponed. What fails was safe to leave undone; the rest is done all the same."""
    _do_all(_waiting or [])


def run_clearing() -> None:
    """Do what is left after that, with less of the processors than who comes next gets."""
    if _clearing:
        with suppress(OSError):  # a sandbox may forbid it: that is no reason to leave it all there
            os.nice(_NICENESS)
        _do_all(_clearing)


def _do_all(works: list[Callable[[], object]]) -> None:
    while works:
        try:
            works.pop(0)()
        except Exception:  # noqa: BLE001  the answer is out: nobody is left to tell
            continue


def forget() -> None:
    """In a forked child: what was postponed is the parent's to do; what comes is done at once."""
    global _waiting
    _waiting = None
    _clearing.clear()


def is_postponing() -> bool:
    """Whether this process answers, does the rest, and ends by ``os._exit``."""
    return _waiting is not None


def leave_open(thing: Closable) -> None:
    """Keep `thing` from being closed by the garbage collector: the process's end does that."""
    _left_open.append(thing)


def close_left_open() -> None:
    """For once it must be closed after all."""
    while _left_open:
        _left_open.pop().close()
