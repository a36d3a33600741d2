"""A process that lets every notified call go on, for commands that outlive their supervisor.

When no process holds a filter's listener, the calls it reports fail. Processes that a command left
running must not lose their network when we end, so ``python -I -S seccomp_passthrough.py
DESCRIPTOR`` holds the listener until the last process with the filter has ended. It imports nothing
of ours.
"""

from __future__ import annotations

import select
import struct
import sys

_IOCTL_RECV = 0xC0502100
_IOCTL_SEND = 0xC0182101
_CONTINUE = 1
_DESCRIPTOR = 3


def hand_over(listener: int) -> None:
    """Start that process; afterwards ours may end, or close the listener."""
    from substrate.system.process import spawn_script  # that process can import nothing of ours

    spawn_script(__file__, listener, _DESCRIPTOR, quiet=(0, 1, 2))


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
                continue  # that process was killed in between


if __name__ == "__main__":
    _go_on(int(sys.argv[1]))
