"""Worlds for tests: they keep the protocol and call a given function instead of running."""

from __future__ import annotations

from collections.abc import Callable

from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest

ISOLATION = Isolation("direct", "none", "open", "a test")


class Acting:
    """Does `act` in the place of a command."""

    def __init__(self, act: Callable[[], None] = lambda: None, exit_code: int = 0) -> None:
        self._act = act
        self._exit = exit_code
        self.requests: list[RunRequest] = []

    @property
    def isolation(self) -> Isolation:
        return ISOLATION

    def run(self, request: RunRequest) -> RunOutcome:
        self.requests.append(request)
        self._act()
        return RunOutcome(self._exit, None, False, 7, ISOLATION)

    def discard(self, layer: Layer) -> None:
        """It has none."""
