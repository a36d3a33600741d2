"""Forked children: results in order, items ahead, and what a dead one costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pickle import PickleBuffer

import pytest

from substrate.errors import SubstrateError
from substrate.system.process.worker_pool import map_forked


def test_results_come_in_order_and_from_children() -> None:
    made = list(map_forked(lambda n: (n, os.getpid()), range(50), workers=3))
    assert [number for number, _ in made] == list(range(50))
    assert os.getpid() not in {pid for _, pid in made}


def test_answers_and_items_larger_than_any_pipe() -> None:
    """Both directions at once: parent and children must not block each other."""
    items = [bytes([n]) * (3 << 20) for n in range(8)]
    made = map_forked(lambda data: data + b"!", items, workers=2)
    assert list(made) == [data + b"!" for data in items]


def test_buffers_come_as_views_of_what_came_through_the_pipe() -> None:
    """Large ones, empty ones, several, and one beside other values."""

    def made(n: int) -> tuple[int, list[PickleBuffer], str]:
        parts = [bytes([n]) * (n * 700_001), b"", b"end"]
        return n, [PickleBuffer(part) for part in parts], "text"

    for n, (number, parts, text) in enumerate(map_forked(made, range(6), workers=2)):
        assert (number, text) == (n, "text")
        assert all(isinstance(part, memoryview) for part in parts)
        assert [bytes(part) for part in parts] == [bytes([n]) * (n * 700_001), b"", b"end"]


def test_a_child_has_the_next_item_before_it_has_answered() -> None:
    """Two are asked for before the first answer is: the child need not wait for us."""
    asked = []

    def items() -> Iterator[int]:
        for number in range(4):
            asked.append(number)
            yield number

    made = map_forked(lambda n: n, items(), workers=1, isolate=True)
    assert next(made) == 0
    assert asked[:2] == [0, 1]
    assert len(asked) >= 3
    assert list(made) == [1, 2, 3]


def _deadly(number: int) -> int:
    if number % 5 == 3:
        os.kill(os.getpid(), 9)
    return number


def test_only_the_item_that_killed_a_child_is_rescued() -> None:
    rescued = []

    def rescue(number: int) -> int:
        rescued.append(number)
        return -number

    made = list(map_forked(_deadly, range(20), workers=2, rescue=rescue))
    assert sorted(rescued) == [3, 8, 13, 18]
    assert made == [-n if n in rescued else n for n in range(20)]


def test_without_a_rescue_it_is_an_error() -> None:
    with pytest.raises(SubstrateError, match="died"):
        list(map_forked(_deadly, range(20), workers=2))


def test_what_a_child_raises_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(map_forked(lambda n: 1 // n, [1, 0, 2], workers=2))


def test_giving_up_ends_the_children() -> None:
    made = map_forked(lambda n: os.getpid(), range(100), workers=2)
    pid = next(made)
    made.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
