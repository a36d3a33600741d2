"""A process that lets every notified call go on, for commands that outlive their supervisor.

When nobody holds a filter's listener, the calls it tells of fail. What a command left running
must not lose its network because we are done, so ``python -I -S go_on.py DESCRIPTOR`` holds the
listener until the last process with the filter has ended. It imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import struct
import sys

_IOCTL_RECV = 0xC0502100
_IOCTL_SEND = 0xC0182101
_CONTINUE = 1
_DESCRIPTOR = 3


def hand_over(listener: int) -> None:
    """Start that process; ours may end then, or close the listener."""
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, str(_DESCRIPTOR)],
        {},
        file_actions=[
            *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)),
            (os.POSIX_SPAWN_DUP2, listener, _DESCRIPTOR),
        ],
        setpgroup=0,
    )


def _go_on(listener: int) -> None:
    import fcntl

    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while True:
        for _, events in waiting.poll():
            if not events & select.POLLIN:
                return
            note = bytearray(80)
            try:
                fcntl.ioctl(listener, _IOCTL_RECV, note)
                number = struct.unpack_from("=Q", note)[0]
                fcntl.ioctl(listener, _IOCTL_SEND, struct.pack("=QqiI", number, 0, 0, _CONTINUE))
            except OSError:
                continue  # that process was killed meanwhile


if __name__ == "__main__":
    _go_on(int(sys.argv[1]))
