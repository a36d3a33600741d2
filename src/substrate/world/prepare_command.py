"""From a request to the program that is run: what all strategies have in common."""

from __future__ import annotations

import os

from substrate.errors import MissingDependencyError, UsageError
from substrate.system import environment
from substrate.system.process import process
from substrate.world.interface import Isolation, Network, RunOutcome, RunRequest


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
    """What is reported about every command, however it was run."""
    return RunOutcome(
        exit=finished.exit_code,
        signal=finished.signal,
        timed_out=finished.timed_out,
        duration_ms=round(finished.duration_ns / 1_000_000),
        isolation=isolation,
        notice=_notice(request, finished),
    )


def with_reason(isolation: Isolation, *reasons: str) -> Isolation:
    """Add reasons; empty ones are skipped."""
    parts = [part for part in (isolation.reason, *reasons) if part]
    return isolation._replace(reason="; ".join(parts))


def with_network(outcome: RunOutcome, network: Network) -> RunOutcome:
    """Add the network's account of the command, which has ended."""
    scopes = network.finish()
    isolation = with_reason(outcome.isolation, network.notice)
    return outcome._replace(
        isolation=isolation._replace(network=network.mode),
        scopes_used=scopes,
        net_denied=network.denied,
        net_failed=network.failed,
    )


def with_refused_writes(outcome: RunOutcome, network: Network) -> RunOutcome:
    """After `with_network`: add what the tier kept the command from changing."""
    return outcome._replace(
        fs_denied=network.refused_writes, fs_denied_notice=network.writes_notice
    )


def refuse_to_hold(network: Network | None) -> None:
    """For a strategy without namespaces: if rules must be enforced, nothing is run."""
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
