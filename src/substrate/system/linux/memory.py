"""Having memory at hand before it is used, and letting go of it without waiting."""

from __future__ import annotations

import mmap
import signal
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress

from substrate.system.linux import calls

_POPULATE_READ = 22
_POPULATE_WRITE = 23
#: Between two questions whether it is enough.
_SPANS_AT_ONCE = 32
#: Of /proc/self/pagemap, for each page: it is there, and nobody else has it.
_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56
_ENTRY_BYTES = 8
_CLONE_VM = 0x100
_CLONE_PARENT = 0x8000
_STACK_BYTES = 1 << 16
#: Never given back: a keeper stands on it.
_stacks: list[mmap.mmap] = []


#: Addresses, from and up to, and how to have the memory there at hand; in order.
Spans = tuple[tuple[int, int, int], ...]


def make_own(spans: Spans, is_enough: Callable[[], bool]) -> None:
    """Take our own copy of pages that we share with the process that forked us.

    The kernel copies a page when it is first written to, one interruption each; Python writes
    to many of them, if only to count references. `spans` is what others like us have used.
    `is_enough` is asked now and then. Best effort: before Linux 5.14 nothing happens.
    """
    import ctypes

    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise = signature(("madvise", calls.libc()))
    for number, (start, end, advice) in enumerate(spans):
        if number % _SPANS_AT_ONCE == 0 and is_enough():
            return
        madvise(start, end - start, advice)  # what cannot be had now comes when it is used


class Snapshot:
    """Which of our memory is our own, to tell later what was `used_since`."""

    def __init__(self) -> None:
        #: What the kernel says of the pages of each mapping, by where it begins.
        self._pages: dict[int, tuple[int, bytes]] = {}
        with (
            suppress(OSError, ValueError),
            open("/proc/self/pagemap", "rb", buffering=0) as file,
        ):
            for start, end, advice in _mappings():
                file.seek(start // mmap.PAGESIZE * _ENTRY_BYTES)
                said = file.read((end - start) // mmap.PAGESIZE * _ENTRY_BYTES)
                self._pages[start] = (advice, said)

    def used_since(self) -> Spans:
        """What has been written to that was not our own then, and the code that has been run."""
        found: list[tuple[int, int, int]] = []
        for start, (advice, said) in Snapshot()._pages.items():
            wanted = _PRESENT if advice == _POPULATE_READ else _PRESENT | _EXCLUSIVE
            before = array("Q", self._pages.get(start, (0, b""))[1])
            for number, page in enumerate(array("Q", said)):
                if page & wanted != wanted:
                    continue
                if number >= len(before) or before[number] & wanted != wanted:
                    at = start + number * mmap.PAGESIZE
                    found.append((at, at + mmap.PAGESIZE, advice))
        return joined(tuple(found))


def joined(*all_spans: Spans) -> Spans:
    """All of them as one, where they touch."""
    out: list[tuple[int, int, int]] = []
    for start, end, advice in sorted(span for spans in all_spans for span in spans):
        if out and start <= out[-1][1] and advice == out[-1][2]:
            out[-1] = (out[-1][0], max(end, out[-1][1]), advice)
        else:
            out.append((start, end, advice))
    return tuple(out)


def shared(spans: Spans) -> Spans:
    """What of it lies in memory of ours, which those that we fork will have, too."""
    mine = list(_mappings())
    found = [
        (max(start, first), min(end, last), advice)
        for start, end, advice in spans
        for first, last, own in mine
        if own == advice and start < last and first < end
    ]
    return joined(tuple(found))


def faults() -> int:
    """How many pages had to be fetched or copied for us until now."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _mappings() -> Iterator[tuple[int, int, int]]:
    """What can be shared with the process that forked us, and how to have it at hand."""
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
        yield start, end, advice


def start_keeper() -> int:
    """A process that shares our memory and only waits to be killed; 0 if none can be had.

    Who becomes another program waits until the kernel has taken its memory down, a millisecond
    and more for a Python with its modules. While somebody shares it, it stays, and goes when the
    keeper is killed, with nobody waiting. The keeper is our parent's child: the program that we
    become must not find one that it does not know. It runs one function of libc on a stack of its
    own and no Python at all, so call this with signals blocked, of which only KILL can reach it.
    """
    import ctypes

    try:
        stack = mmap.mmap(-1, _STACK_BYTES)
        _stacks.append(stack)
        top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + _STACK_BYTES
        pause = ctypes.cast(calls.libc().pause, ctypes.c_void_p).value
        return calls.call("clone", pause, top, _CLONE_VM | _CLONE_PARENT | signal.SIGCHLD, 0)
    except (OSError, AttributeError):
        return 0
