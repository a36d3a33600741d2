"""``--check CMD``: the change of a command arrives only if this command passes on it.

The check runs in a world above the finished command's layer, so that it sees the changed tree and
cannot change it. What the check itself writes is dropped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError, SubstrateError
from substrate.model import Hold, HoldCause
from substrate.recorder.command.captured_output import capture_for
from substrate.recorder.command.world_choice import Asked, wanted_world
from substrate.recorder.session_context import Place
from substrate.system import ids
from substrate.trace.redact import redact
from substrate.world import Captured, Layer, RunRequest, World
from substrate.world.layer import layer_dirs, says_nothing
from substrate.world.network import network_for
from substrate.world.strategies import OverlayWorld


class Check(NamedTuple):
    """The check of a call."""

    command: str
    #: A world above a finished layer.
    above: Callable[[Layer], World]
    network: str = "open"


class Checked(NamedTuple):
    """How a check ended."""

    command: str
    exit: int
    duration_ms: int
    output: Captured | None
    #: Why it could not run; usually empty.
    problem: str = ""

    @property
    def causes(self) -> tuple[HoldCause, ...]:
        """Why the change is held; empty if the check passed."""
        if self.problem:
            return (HoldCause(Hold.CHECK_FAILED, (f"it could not run: {self.problem}",)),)
        if self.exit:
            text = f"`{redact(self.command)}` exited with {self.exit}"
            return (HoldCause(Hold.CHECK_FAILED, (text,)),)
        return ()

    def to_detail(self) -> dict[str, object]:
        kept = self.output
        ref = str(kept.path) if kept is not None and kept.path is not None else None
        return {
            "command": redact(self.command), "exit": self.exit, "duration_ms": self.duration_ms,
            "passed": not self.causes, "problem": self.problem or None,
            "output": None if kept is None else
            {"sha256": kept.sha256, "bytes": kept.size_bytes, "ref": ref},
        }  # fmt: skip


def check_of(place: Place, asked: Asked, command: str) -> Check:
    """The check of a call that runs with these options; its world is like the command's."""
    wanted = wanted_world(place, asked)
    return Check(command, lambda layer: OverlayWorld.above(wanted, layer), asked.network)


def require_overlay(world: World) -> None:
    """Raise `MissingDependencyError` before the command runs if its check could not."""
    strategy = world.isolation.strategy
    if strategy != "overlay":
        raise MissingDependencyError(
            f"--check needs an overlay, and commands run with {strategy} here",
            hint="`substrate doctor` says what an overlay needs; --hold keeps the change instead",
        )


def run_check(place: Place, check: Check, request: RunRequest, frozen: Layer) -> Checked | None:
    """Run the check like `request`, over the layer `frozen`; None if nothing was changed."""
    if says_nothing(frozen):
        return None
    try:
        with _kept_output(place) as (file, out):
            wanted = request._replace(
                argv=(), shell=check.command, stdin=None, stdout=out, stderr=out, pty=False,
                capture=None, network=network_for(check.network), world_id=ids.new_id("wld"),
                kill_children=True, beside=(), on_call=None, meanwhile=None,
                before_real_files=None,
            )  # fmt: skip
            outcome = check.above(frozen).run(wanted)
        if outcome.layer is not None:
            layer_dirs.remove(outcome.layer)
        return Checked(
            check.command, outcome.exit, outcome.duration_ms, _captured(file), outcome.notice
        )
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else str(error)
        return Checked(check.command, 1, 0, None, reason)


@contextmanager
def _kept_output(place: Place) -> Iterator[tuple[Path, int]]:
    """A file among the captured outputs, for both streams: the user's stdout is the command's."""
    directory = capture_for(place.environment.substrate_home, ids.new_id("spn")).directory
    directory.mkdir(mode=0o700, parents=True)
    file = directory / "stdout"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield file, fd
    finally:
        os.close(fd)


def _captured(file: Path) -> Captured:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Captured(digest, file.stat().st_size, file, truncated=False)
