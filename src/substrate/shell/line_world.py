"""One line of the shell, as a world sees a command: it starts, and some time later it is over."""

from __future__ import annotations

from collections.abc import Callable

from substrate.system import clock
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest

_ISOLATION = Isolation(
    "direct", "none", "open",
    "a line of an interactive shell runs in that shell, on the real files; what jobs in the "
    "background change is recorded with the line during which it was found",
)  # fmt: skip


class LineWorld:
    """`run` lets the shell go on and returns when it is back at its prompt."""

    def __init__(self, until_prompt: Callable[[], int]) -> None:
        self._until_prompt = until_prompt

    @property
    def isolation(self) -> Isolation:
        return _ISOLATION

    def run(self, request: RunRequest) -> RunOutcome:
        started = clock.monotonic_ns()
        status = self._until_prompt()
        return RunOutcome(
            exit=status,
            signal=status - 128 if 128 < status < 128 + 65 else None,
            timed_out=False,
            duration_ms=round((clock.monotonic_ns() - started) / 1_000_000),
            isolation=_ISOLATION,
        )

    def discard(self, layer: Layer) -> None:
        """There is none."""
