from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.system import clock
from tests.unit.history.workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


class HandClock:
    """A wall clock that a test moves by hand, also backwards."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * 10**9

    def __call__(self) -> int:
        return self.now_ns

    def move(self, *, hours: float = 0, seconds: float = 0) -> None:
        self.now_ns += round((hours * 3600 + seconds) * 10**9)


@pytest.fixture
def hand_clock() -> Iterator[HandClock]:
    hand = HandClock()
    clock.set_clock(hand)
    yield hand
    clock.set_clock(None)
