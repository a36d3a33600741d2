"""The only place that asks what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable

_clock: Callable[[], int] = time.time_ns


def now_ns() -> int:
    """Wall-clock time in nanoseconds since 1970. It may jump, and it may run backwards."""
    return _clock()


def monotonic_ns() -> int:
    """For durations: never runs backwards, says nothing about the date."""
    return time.monotonic_ns()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def set_clock(clock: Callable[[], int] | None) -> None:
    """Tests put their own wall clock here; `None` brings back the real one."""
    global _clock
    _clock = time.time_ns if clock is None else clock


def iso(ns: int) -> str:
    """RFC 3339 in UTC with milliseconds: ``2025-11-23T17:12:03.123Z``."""
    seconds, rest = divmod(ns, 1_000_000_000)
    at = time.gmtime(seconds)
    return (
        f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}"
        f"T{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{rest // 1_000_000:03d}Z"
    )
