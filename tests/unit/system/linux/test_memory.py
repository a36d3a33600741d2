"""Memory that a forked process needs is its own before it is used."""

from __future__ import annotations

import ctypes
import marshal
import mmap
import os
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from substrate.system.linux import memory

pytestmark = pytest.mark.needs("linux")

_PAGES = 600

T = TypeVar("T")


@pytest.fixture
def block() -> mmap.mmap:
    """Resident memory, shared with forked children."""
    made = mmap.mmap(-1, _PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(made), mmap.PAGESIZE):
        made[at] = 1
    return made


def _write_to_every_third(block: mmap.mmap) -> None:
    for at in range(0, len(block), 3 * mmap.PAGESIZE):
        block[at] = 2


def _in_a_fork(work: Callable[[], T]) -> T:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, marshal.dumps(work()))  # type: ignore[arg-type]
        finally:
            os._exit(0)
    os.close(tell)
    with open(told, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return cast(T, marshal.loads(said))


def _learn(block: mmap.mmap) -> memory.Spans:
    def look() -> memory.Spans:
        before = memory.Snapshot()
        _write_to_every_third(block)
        return before.used_since()

    return _in_a_fork(look)


def _within(spans: memory.Spans, block: mmap.mmap) -> list[tuple[int, int]]:
    first = ctypes.addressof(ctypes.c_char.from_buffer(block))
    found = [(start - first, end - first) for start, end, _ in spans]
    return [span for span in found if span[1] > 0 and span[0] < len(block)]


def test_what_was_written_to_is_known_by_page(block: mmap.mmap) -> None:
    page = mmap.PAGESIZE
    expected = [(at, at + page) for at in range(0, len(block), 3 * page)]
    learned = _learn(block)
    assert _within(learned, block) == expected
    assert _within(memory.shared(learned), block) == expected


def test_what_was_made_our_own_need_not_be_copied_when_it_is_used(block: mmap.mmap) -> None:
    learned = memory.shared(_learn(block))

    def count(spans: memory.Spans) -> tuple[int, bytes]:
        memory.make_own(spans, lambda: False)
        held = block[:: mmap.PAGESIZE]
        before = memory.faults()
        _write_to_every_third(block)
        return memory.faults() - before, held

    without, _ = _in_a_fork(lambda: count(()))
    with_it, held = _in_a_fork(lambda: count(learned))
    assert without >= _PAGES // 3
    assert with_it < _PAGES // 6
    assert held == bytes([1]) * _PAGES


def test_it_stops_when_it_is_enough(block: mmap.mmap) -> None:
    learned = memory.shared(_learn(block))

    def count() -> int:
        memory.make_own(learned, lambda: True)
        before = memory.faults()
        _write_to_every_third(block)
        return memory.faults() - before

    assert _in_a_fork(count) >= _PAGES // 3


def test_spans_that_touch_become_one() -> None:
    assert memory.joined(((8, 9, 1), (0, 4, 1)), ((4, 6, 1), (6, 7, 2), (1, 2, 1))) == (
        (0, 6, 1),
        (6, 7, 2),
        (8, 9, 1),
    )
