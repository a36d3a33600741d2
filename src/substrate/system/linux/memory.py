"""Having memory at hand before it is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from substrate.system.linux import calls

_POPULATE_READ = 22
_POPULATE_WRITE = 23
#: About a millisecond's work.
_CHUNK_BYTES = 1 << 20


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
