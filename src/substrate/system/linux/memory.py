"""Having memory at hand before it is used."""

from __future__ import annotations

from substrate.system.linux import calls

_POPULATE_READ = 22
_POPULATE_WRITE = 23


def make_own() -> None:
    """Take our own copy of every page that we share with the process that forked us.

    The kernel copies a page when it is first written to, one interruption each; Python writes
    to most of them soon, if only to count references. Best effort: before Linux 5.14 nothing.
    """
    with open("/proc/self/maps", "rb") as file:
        lines = file.read().split(b"\n")
    for line in lines:
        span, _, rest = line.partition(b" ")
        start, _, end = span.partition(b"-")
        if rest.startswith(b"rw-p"):
            advice = _POPULATE_WRITE
        elif rest.startswith(b"r-xp") and b"[" not in rest:
            advice = _POPULATE_READ
        else:
            continue
        try:
            calls.call("madvise", int(start, 16), int(end, 16) - int(start, 16), advice)
        except OSError:
            continue
