"""Standard streams that we were started without, or with something that Python cannot have.

Where one of 0, 1 and 2 is closed, the next thing that we open would get its number, and the command
would find it there. So something stands in its place until the command's own process closes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrate.system.process import Stdio

#: Which they are.
absent: tuple[int, ...] = ()


def hold_places() -> None:
    """At the start, before anything is opened to stay."""
    global absent
    found = []
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # Not close-on-exec: whatever we start is safe from the same.
            os.set_inheritable(os.open("/dev/null", os.O_RDWR), True)
            found.append(fd)
    absent = tuple(found)


def close_absent(stdio: Stdio) -> None:
    """In a process about to be a program: those that nobody gave it, and we were not given."""
    for fd in absent:
        if stdio[fd] is None:
            with suppress(OSError):
                os.close(fd)
