"""Makes connections without blocking."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from substrate.world.network.enclosure.event_loop import WRITE, EventLoop

_TIMEOUT_S = 30.0
Dialled = Callable[["socket.socket | None"], None]


def dial(loop: EventLoop, host: str, port: int, done: Dialled) -> None:
    """Connect to an address; `done` gets the connection, or None, later and once."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    number = made.connect_ex((host, port))
    if number not in (0, errno.EINPROGRESS):
        made.close()
        loop.call_soon(lambda: done(None))
        return
    over = False

    def finish(*, timed_out: bool) -> None:
        nonlocal over
        if over:
            return
        over = True
        loop.forget(made.fileno())
        if timed_out or made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            made.close()
            done(None)
        else:
            done(made)

    loop.watch(made.fileno(), WRITE, lambda _: finish(timed_out=False))
    loop.later(_TIMEOUT_S, lambda: finish(timed_out=True))
