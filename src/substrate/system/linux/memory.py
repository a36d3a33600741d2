"""Having memory at hand before it is used, and letting go of it without waiting."""

from __future__ import annotations

import mmap
import signal
from collections.abc import Callable
from contextlib import suppress

from substrate.system.linux import calls

_POPULATE_READ = 22
_POPULATE_WRITE = 23
#: About a millisecond's work.
_CHUNK_BYTES = 1 << 20
_CLONE_VM = 0x100
_CLONE_PARENT = 0x8000
_STACK_BYTES = 1 << 16
#: Never given back: a keeper stands on it.
_stacks: list[mmap.mmap] = []


def make_own(is_enough: Callable[[], bool]) -> None:
    """Take our own copy of the pages that we share with the process that forked us.

    The kernel copies a page when it is first written to, one interruption each; Python writes
    to most of them soon, if only to count references. `is_enough` is asked now and then. Best
    effort: before Linux 5.14 nothing happens.
    """
    with open("/proc/self/maps", "rb") as file:
        lines = file.read().split(b"\n")
    for line in lines:
        span, _, rest = line.partition(b" ")
        if rest.startswith(b"rw-p"):
            advice = _POPULATE_WRITE
        elif rest.startswith(b"r-xp") and b"[" not in rest:
            advice = _POPULATE_READ
        else:
            continue
        start, end = (int(text, 16) for text in span.split(b"-"))
        for at in range(start, end, _CHUNK_BYTES):
            if is_enough():
                return
            with suppress(OSError):
                calls.call("madvise", at, min(_CHUNK_BYTES, end - at), advice)


def start_keeper() -> int:
    """A process that shares our memory and only waits to be killed; 0 if none can be had.

    Who becomes another program waits until the kernel has taken its memory down, a millisecond
    and more for a Python with its modules. While somebody shares it, it stays, and goes when the
    keeper is killed, with nobody waiting. The keeper is our parent's child: the program that we
    become must not find one that it does not know. It runs one function of libc on a stack of its
    own and no Python at all, so call this with signals blocked, of which only KILL can reach it.
    """
    import ctypes

    try:
        stack = mmap.mmap(-1, _STACK_BYTES)
        _stacks.append(stack)
        top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + _STACK_BYTES
        pause = ctypes.cast(calls.libc().pause, ctypes.c_void_p).value
        return calls.call("clone", pause, top, _CLONE_VM | _CLONE_PARENT | signal.SIGCHLD, 0)
    except (OSError, AttributeError):
        return 0
