"""The only place that asks what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Time since boot, including suspend, where the system has such a clock.
_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)


def now_ns() -> int:
    """Wall-clock time in nanoseconds since 1970. It may jump, and it may run backwards."""
    return _clocks.wall()


def monotonic_ns() -> int:
    """For durations: never runs backwards, has no relation to the date."""
    return time.monotonic_ns()


def elapsed_ns() -> int:
    """Time since boot, including suspend; setting the wall clock does not change it."""
    return _clocks.elapsed()


def real_elapsed_ns() -> int:
    return time.monotonic_ns() if _BOOT_TIME is None else time.clock_gettime_ns(_BOOT_TIME)


class _Clocks:
    """The clocks in use; tests set others."""

    __slots__ = ("elapsed", "wall")

    def __init__(self) -> None:
        self.wall: Callable[[], int] = time.time_ns
        self.elapsed: Callable[[], int] = real_elapsed_ns


_clocks = _Clocks()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def set_clock(clock: Callable[[], int] | None, elapsed: Callable[[], int] | None = None) -> None:
    """Replace the wall clock in tests; `None` restores the real one.

    `elapsed_ns` uses the same clock unless `elapsed` is given.
    """
    _clocks.wall = time.time_ns if clock is None else clock
    _clocks.elapsed = elapsed or (real_elapsed_ns if clock is None else clock)


def iso(ns: int) -> str:
    """RFC 3339 in UTC with milliseconds: ``2025-11-23T17:12:03.123Z``."""
    seconds, rest = divmod(ns, 1_000_000_000)
    at = time.gmtime(seconds)
    return (
        f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}"
        f"T{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{rest // 1_000_000:03d}Z"
    )
