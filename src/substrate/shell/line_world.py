"""One line of the shell in the role of a command in a world: it starts, and later it ends."""

from __future__ import annotations

from substrate.shell.shell_line import Turn
from substrate.shell.shell_world import ShellWorld
from substrate.system import clock
from substrate.world import Isolation, Layer, RunOutcome, RunRequest

_CANNOT_PROMISE = (
    "a line of an interactive shell runs in that shell, on the real files; what jobs in the "
    "background change is recorded with the line during which it was found; what it prints goes "
    "to the terminal and is not kept, and what it reaches over the network is not watched"
)


class DirectLine:
    """`run` lets the shell continue and returns when the shell is back at its prompt."""

    def __init__(self, turn: Turn, why: str) -> None:
        """`why`: why there is no world, such as ``--no-world`` or a missing kernel feature."""
        self._turn = turn
        reason = f"{why}; {_CANNOT_PROMISE}" if why else _CANNOT_PROMISE
        self.isolation = Isolation("direct", "none", "open", reason)

    def run(self, request: RunRequest) -> RunOutcome:
        started = clock.monotonic_ns()
        return _outcome(self._turn.run(), started, self.isolation)

    def discard(self, layer: Layer) -> None:
        """No-op: there is no layer."""


class WorldLine:
    """The same in the shell's world, where the line has its own layer."""

    def __init__(self, turn: Turn, lines: ShellWorld) -> None:
        self._turn = turn
        self._lines = lines

    @property
    def isolation(self) -> Isolation:
        return self._lines.isolation

    def run(self, request: RunRequest) -> RunOutcome:
        started = clock.monotonic_ns()
        layer = self._lines.adopt(request.absent)
        self._lines.answer_by(request.on_call)
        try:
            status = self._turn.run(merge=True)
        finally:
            self._lines.answer_by(None)
        outcome = _outcome(status, started, self.isolation)
        left = self._lines.part(self._turn)
        return self._lines.with_scopes(outcome._replace(layer=layer, left_running=left))

    def discard(self, layer: Layer) -> None:
        self._lines.discard(layer)


def _outcome(status: int, started_ns: int, isolation: Isolation) -> RunOutcome:
    return RunOutcome(
        exit=status,
        signal=status - 128 if 128 < status < 128 + 65 else None,
        timed_out=False,
        duration_ms=round((clock.monotonic_ns() - started_ns) / 1_000_000),
        isolation=isolation,
    )
