"""What a process is called in a list of processes."""

from __future__ import annotations

from contextlib import suppress

#: Fields of ``/proc/PID/stat``, counted after the name: where the arguments lie in memory.
_ARG_START, _ARG_END = 48 - 3, 49 - 3


def call_ourselves(name: bytes) -> None:
    """In the place of the words we were started with; where that cannot be, they stay.

    Who was forked looks like the one who forked it, and ``pkill -f`` would take it for that.
    """
    import ctypes

    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        room = end - start
        if start and room > 0:
            ctypes.memmove(start, name[: room - 1].ljust(room, b"\0"), room)
