"""Fetching memory pages before they are used, and releasing memory without waiting."""

from __future__ import annotations

import mmap
import signal
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress

from substrate.system.linux import syscalls

_POPULATE_READ = 22
_POPULATE_WRITE = 23
#: Spans to fetch before asking again whether it is enough.
_SPANS_AT_ONCE = 32
#: Bits of a page in /proc/self/pagemap: it is present; only this process has it.
_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56
_ENTRY_BYTES = 8
_CLONE_VM = 0x100
_CLONE_PARENT = 0x8000
_STACK_BYTES = 1 << 16
#: Never freed: a keeper process uses it as its stack.
_stacks: list[mmap.mmap] = []


#: Memory ranges (start, end, the madvise advice that fetches them), in order.
Spans = tuple[tuple[int, int, int], ...]


def make_own(spans: Spans, is_enough: Callable[[], bool]) -> None:
    """Take our own copy of pages that we share with the process that forked us.

    The kernel copies a page at the first write to it, with one interruption each, and Python writes
    to many pages, if only to count references. `spans`: the pages that earlier processes of this
    kind used. `is_enough` is called now and then. Best effort: before Linux 5.14 this is a no-op.
    """
    import ctypes

    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise = signature(("madvise", syscalls.libc()))
    for number, (start, end, advice) in enumerate(spans):
        if number % _SPANS_AT_ONCE == 0 and is_enough():
            return
        madvise(start, end - start, advice)  # a page that cannot be fetched now is fetched on use


class Snapshot:
    """Which memory pages this process has for itself, to compare with later (`used_since`)."""

    def __init__(self) -> None:
        #: The kernel's entries for the pages of each mapping, by the mapping's start.
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
        """Pages written to that were not our own at the snapshot, and code pages run since then."""
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
    """All spans in one sequence, merged where they touch."""
    out: list[tuple[int, int, int]] = []
    for start, end, advice in sorted(span for spans in all_spans for span in spans):
        if out and start <= out[-1][1] and advice == out[-1][2]:
            out[-1] = (out[-1][0], max(end, out[-1][1]), advice)
        else:
            out.append((start, end, advice))
    return tuple(out)


def shared(spans: Spans) -> Spans:
    """The parts of `spans` in memory that is mapped here, and so also in processes we fork."""
    mine = list(_mappings())
    found = [
        (max(start, first), min(end, last), advice)
        for start, end, advice in spans
        for first, last, own in mine
        if own == advice and start < last and first < end
    ]
    return joined(tuple(found))


def faults() -> int:
    """How many pages the kernel has fetched or copied for this process so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _mappings() -> Iterator[tuple[int, int, int]]:
    """The mappings that can be shared with the process that forked us, and how to fetch each."""
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
    """A process that shares our memory and only waits to be killed; 0 if none can be made.

    A process that executes another program waits until the kernel has released its memory, a
    millisecond or more for a Python with its modules. While the keeper shares the memory, it is not
    released; killing the keeper releases it, and nothing waits for that. The keeper is a child of
    our parent: the program that we execute must not find a child it does not know. It runs one libc
    function on a stack of its own and no Python, so block signals before calling this; then only
    KILL can reach it.
    """
    import ctypes

    try:
        stack = mmap.mmap(-1, _STACK_BYTES)
        _stacks.append(stack)
        top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + _STACK_BYTES
        pause = ctypes.cast(syscalls.libc().pause, ctypes.c_void_p).value
        return syscalls.call("clone", pause, top, _CLONE_VM | _CLONE_PARENT | signal.SIGCHLD, 0)
    except (OSError, AttributeError):
        return 0
