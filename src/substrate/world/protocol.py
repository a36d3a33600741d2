"""What every world promises: run one command, say how it ended and what it was isolated by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from substrate.model.nodes import Change


class Isolation(NamedTuple):
    """What really applied to a command, for its span. Nothing here is a wish."""

    #: ``overlay``, ``fuse-overlayfs``, ``copy-diff`` or ``direct``.
    strategy: str
    #: ``none``, ``workspace``, …: see DESIGN, "Worlds".
    tier: str
    #: ``open``, ``off`` or ``allow:…``.
    network: str
    #: Why this and not more, and what it therefore cannot promise.
    reason: str


class RunRequest(NamedTuple):
    """One command: `argv`, or a line for the shell in `shell`; exactly one of them is given."""

    cwd: Path
    argv: tuple[str | bytes, ...] = ()
    shell: str | bytes = ""
    #: On top of our own environment; a value of `None` takes the variable away.
    env: Mapping[str, str | None] = {}
    #: A descriptor to read from; `None` is our own stdin.
    stdin: int | None = None
    timeout_s: float | None = None
    #: End what the command left running once it is done.
    kill_children: bool = False


class RunOutcome(NamedTuple):
    """How it ended, in a shell's terms."""

    #: The command's own status, 128+n for a death by signal n, 124 after a timeout, 126 and 127
    #: if it could not be started.
    exit: int
    signal: int | None
    timed_out: bool
    duration_ms: int
    isolation: Isolation
    #: What it reached over the network: ``tcp:host:port``. Empty where nobody watched.
    scopes_used: tuple[str, ...] = ()
    #: What it changed, from a world that knows; `None`: the caller must scan the workspace.
    changed: tuple[Change, ...] | None = None
    #: Why it could not be started, or what else its user should be told. Usually empty.
    notice: str = ""


class World(Protocol):
    """A strategy for running commands."""

    @property
    def isolation(self) -> Isolation:
        """What will apply to the next command, as far as it is known beforehand."""
        ...

    def run(self, request: RunRequest) -> RunOutcome:
        """Run it in the foreground: our descriptors and signals are its own."""
        ...
