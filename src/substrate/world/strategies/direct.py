"""The direct strategy: no isolation at all. It works wherever Python does."""

from __future__ import annotations

from substrate.system.process import process
from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest
from substrate.world.prepare_command import (
    argv_of,
    directory_of,
    environment_of,
    outcome_of,
    refuse_to_hold,
)
from substrate.world.process import Capturing

_CANNOT_PROMISE = (
    "the command works on the real files: what excluded files held before it is not kept, "
    "changes by other processes during the command look like its own, "
    "and what it reaches over the network is not watched"
)


class DirectWorld:
    """Runs commands on the real tree; a scan must find what they changed."""

    def __init__(self, why: str = "") -> None:
        """`why`: why there is no world, such as ``--no-world`` or a missing kernel feature."""
        reason = f"{why}; {_CANNOT_PROMISE}" if why else _CANNOT_PROMISE
        self._isolation = Isolation("direct", "none", "open", reason)

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def run(self, request: RunRequest) -> RunOutcome:
        refuse_to_hold(request.network)
        if request.before_real_files is not None:
            request.before_real_files()
        capturing = Capturing(request.capture, request.stdout, request.stderr)
        try:
            finished = process.run_foreground(
                argv_of(request),
                cwd=directory_of(request),
                env=environment_of(request),
                timeout_s=request.timeout_s,
                kill_children=request.kill_children,
                stdio=process.Stdio(request.stdin, *capturing.streams),
                prepare=capturing.start,
            )
        finally:
            stdout, stderr = capturing.finish()
        outcome = outcome_of(request, finished, self._isolation)
        return outcome._replace(stdout=stdout, stderr=stderr)

    def discard(self, layer: Layer) -> None:
        """No-op: there was no layer."""
