"""What children report to the fork server after their calls: about their worlds and its memory."""

from __future__ import annotations

import marshal
import os
import socket
from contextlib import suppress
from typing import NamedTuple

from substrate.system.linux import memory
from substrate.world.prewarm import News

_MOST_BYTES = 1 << 20
_NEWS, _PAGES = b"n", b"p"


class Heard(NamedTuple):
    """One of the two kinds of report."""

    news: News | None = None
    #: The mount of the view that the news describe, or -1; the receiver must close it.
    view: int = -1
    #: Memory pages that a call had to wait for.
    pages: memory.Spans | None = None


class ChildReports:
    """A child reports by either `tell_…` method; the fork server uses `fileno` and `hear`."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def tell_news(self, news: News, view: int) -> None:
        """How a world was made, and whether ahead; with its view's mount to hand over, or -1."""
        with suppress(OSError):  # the fork server is gone or busy: the next call makes its world
            fds = [view] if view >= 0 else []
            socket.send_fds(self._theirs, [_NEWS + news.encode()], fds)

    def tell_pages(self, missed: memory.Spans) -> None:
        """The pages of the fork server's memory that a child should have had ready."""
        with suppress(OSError):
            self._theirs.send(_PAGES + marshal.dumps(missed))

    def hear(self) -> Heard:
        """The next report; empty if there is none, or it cannot be read."""
        views: list[int] = []
        try:
            said, views, _, _ = socket.recv_fds(self._ours, _MOST_BYTES, 1)
            if said.startswith(_PAGES):
                return Heard(pages=marshal.loads(said[len(_PAGES) :]))
            return Heard(News.decode(said[len(_NEWS) :]), views[0] if views else -1)
        except (OSError, ValueError, EOFError):
            for view in views:
                os.close(view)
            return Heard()
