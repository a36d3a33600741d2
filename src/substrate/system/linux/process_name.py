"""The name of a process in a process list."""

from __future__ import annotations

from contextlib import suppress

from substrate.system.linux import syscalls

_PR_SET_NAME = 15
#: Fields of ``/proc/PID/stat``, counted after the name: where the arguments are in memory.
_ARG_START, _ARG_END = 48 - 3, 49 - 3


def call_ourselves(name: bytes) -> None:
    """Set the short name and, where possible, overwrite the arguments we were started with.

    A forked process looks like its parent to ``pkill``: a command that ends its own server with
    ``pkill -9 python3`` must not end us as well.
    """
    import ctypes

    with suppress(OSError):
        syscalls.call("prctl", _PR_SET_NAME, name, 0, 0, 0)
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        room = end - start
        if start and room > 0:
            ctypes.memmove(start, name[: room - 1].ljust(room, b"\0"), room)
