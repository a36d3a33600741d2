from __future__ import annotations

from collections.abc import Iterator

import pytest

from substrate.system import clock


@pytest.fixture(autouse=True)
def real_clock() -> Iterator[None]:
    yield
    clock.set_clock(None)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_763_917_923_123_456_789, "2025-11-23T17:12:03.123Z"),
        (999_999_999, "1970-01-01T00:00:00.999Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_written_in_utc_with_milliseconds(ns: int, text: str) -> None:
    assert clock.iso(ns) == text


def test_text_sorts_as_time_does() -> None:
    times = [10**18 + step * 7_777_777 for step in range(50)]
    assert [clock.iso(ns) for ns in times] == sorted(clock.iso(ns) for ns in times)


def test_a_test_can_set_the_clock_and_give_it_back() -> None:
    clock.set_clock(lambda: 42)
    assert clock.now_ns() == 42
    clock.set_clock(None)
    assert clock.now_ns() > 10**18


def test_durations_come_from_a_clock_of_their_own() -> None:
    clock.set_clock(lambda: 0)
    before = clock.monotonic_ns()
    assert clock.monotonic_ns() >= before > 0
