"""The direct strategy: no isolation at all. It works wherever Python does."""

from __future__ import annotations

import os

from substrate.errors import UsageError
from substrate.system import environment, process
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest

_CANNOT_PROMISE = (
    "the command works on the real files: what excluded files held before it is not kept, "
    "and what other processes change meanwhile cannot be told from its own changes"
)


class DirectWorld:
    """Runs commands on the real tree; finding what they changed is left to a scan."""

    def __init__(self, why: str = "") -> None:
        """`why` tells what led here, such as ``--no-world`` or a missing kernel feature."""
        reason = f"{why}; {_CANNOT_PROMISE}" if why else _CANNOT_PROMISE
        self._isolation = Isolation("direct", "none", "open", reason)

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def run(self, request: RunRequest) -> RunOutcome:
        finished = process.run_foreground(
            _argv(request),
            cwd=_absolute(request),
            env=_environment(request),
            timeout_s=request.timeout_s,
            kill_children=request.kill_children,
            stdio=process.Stdio(request.stdin, request.stdout, request.stderr),
        )
        return RunOutcome(
            exit=finished.exit_code,
            signal=finished.signal,
            timed_out=finished.timed_out,
            duration_ms=round(finished.duration_ns / 1_000_000),
            isolation=self._isolation,
            notice=_notice(request, finished),
        )

    def discard(self, layer: Layer) -> None:
        """Nothing is ever left behind: there was no layer."""


def _argv(request: RunRequest) -> list[str | bytes]:
    if bool(request.argv) == bool(request.shell):
        raise UsageError("no command was given", hint="substrate -c 'make', or run -- make")
    return list(request.argv) if request.argv else process.shell_argv(request.shell)


def _absolute(request: RunRequest) -> str:
    return os.path.abspath(request.cwd)


def _environment(request: RunRequest) -> dict[str, str]:
    env = dict(environment.current().variables)
    for name, value in request.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def _notice(request: RunRequest, finished: process.Finished) -> str:
    if finished.error:
        return finished.error
    if finished.timed_out:
        return f"the command was ended after {request.timeout_s:g} s"
    return ""
