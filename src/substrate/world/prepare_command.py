"""From a request to the program that is run: what every strategy does alike."""

from __future__ import annotations

import os

from substrate.errors import MissingDependencyError, UsageError
from substrate.system import environment, process
from substrate.world.protocol import Isolation, Network, RunOutcome, RunRequest


def argv_of(request: RunRequest) -> list[str | bytes]:
    if bool(request.argv) == bool(request.shell):
        raise UsageError("no command was given", hint="substrate -c 'make', or run -- make")
    return list(request.argv) if request.argv else process.shell_argv(request.shell)


def environment_of(request: RunRequest) -> dict[str, str]:
    env = dict(environment.current().variables)
    for name, value in request.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def directory_of(request: RunRequest) -> str:
    return os.path.abspath(request.cwd)


def outcome_of(request: RunRequest, finished: process.Finished, isolation: Isolation) -> RunOutcome:
    """What there is to say about every command, however it was run."""
    return RunOutcome(
        exit=finished.exit_code,
        signal=finished.signal,
        timed_out=finished.timed_out,
        duration_ms=round(finished.duration_ns / 1_000_000),
        isolation=isolation,
        notice=_notice(request, finished),
    )


def with_reason(isolation: Isolation, *reasons: str) -> Isolation:
    """More reasons than it has; empty ones do not count."""
    parts = [part for part in (isolation.reason, *reasons) if part]
    return isolation._replace(reason="; ".join(parts))


def with_network(outcome: RunOutcome, network: Network) -> RunOutcome:
    """The network's account of the command, which has ended."""
    scopes = network.finish()
    isolation = with_reason(outcome.isolation, network.notice)
    return outcome._replace(
        isolation=isolation._replace(network=network.mode),
        scopes_used=scopes,
        net_denied=network.denied,
    )


def refuse_to_hold(network: Network | None) -> None:
    """For a strategy without namespaces: what must be held is not run at all."""
    if network is not None and network.mode != "open":
        raise MissingDependencyError(
            f"--net {network.mode} needs a world, and this command would run without one",
            hint="leave out --no-world; `substrate doctor` says what a world needs here",
        )


def _notice(request: RunRequest, finished: process.Finished) -> str:
    if finished.error:
        return finished.error
    if finished.timed_out:
        return f"the command was ended after {request.timeout_s:g} s"
    return ""
