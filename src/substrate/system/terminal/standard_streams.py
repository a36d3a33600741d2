"""Standard streams that were closed when we were started.

If one of 0, 1 and 2 is closed, the next file that we open would get its number, and the command
would find that file there. So /dev/null takes its place until the command's own process closes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrate.system.process import Stdio

#: The streams that were closed at start.
absent: list[int] = []


def hold_places() -> None:
    """Call this at the start, before any file is opened to stay open."""
    absent.clear()
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # Not close-on-exec: this protects the programs we start as well.
            os.set_inheritable(os.open("/dev/null", os.O_RDWR), True)
            absent.append(fd)


def close_absent(stdio: Stdio) -> None:
    """Just before exec: close those that the caller did not provide and we were not given."""
    for fd in absent:
        if stdio[fd] is None:
            with suppress(OSError):
                os.close(fd)
