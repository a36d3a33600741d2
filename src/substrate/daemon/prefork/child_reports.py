"""What the zygote's children tell it after their calls: news of their worlds, and of its memory."""

from __future__ import annotations

import marshal
import os
import socket
from contextlib import suppress
from typing import NamedTuple

from substrate.system.linux import memory
from substrate.world.news import News

_MOST_BYTES = 1 << 20
_NEWS, _PAGES = b"n", b"p"


class Heard(NamedTuple):
    """One of the two."""

    news: News | None = None
    #: The mount of the view that the news tell of, or -1; whoever hears of it is to close it.
    view: int = -1
    #: Memory that a call had to wait for.
    pages: memory.Spans | None = None


class Bell:
    """A child rings by either `tell`; the zygote's end is `fileno` and `hear`."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def tell_news(self, news: News, view: int) -> None:
        """How a world was made, and whether ahead; with its view's mount to hand over, or -1."""
        with suppress(OSError):  # the zygote is gone, or busy: the next call makes its world itself
            fds = [view] if view >= 0 else []
            socket.send_fds(self._theirs, [_NEWS + news.encode()], fds)

    def tell_pages(self, missed: memory.Spans) -> None:
        """What of the zygote's memory a child should have had at hand."""
        with suppress(OSError):
            self._theirs.send(_PAGES + marshal.dumps(missed))

    def hear(self) -> Heard:
        """What was told; empty if nothing was, or it makes no sense."""
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
