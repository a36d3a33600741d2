"""What the commands of a replay run in: a world where there is one, else a plain directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from substrate.errors import MissingDependencyError, SubstrateError, UsageError
from substrate.packs.confined_tree import ConfinedTree
from substrate.recorder.scratch_shell import CommandToRun, Done, ScratchShell, Streams
from substrate.system.process import Stdio
from substrate.world.protocol import STRATEGIES, Isolation

DIRECT, COPY = "direct", "copy-diff"
#: Seen at such a path the tree would hide what commands need.
_NOT_AT = frozenset({"/", "/usr", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys", "/run"})


def shell_for(
    scratch: Path, tree: ConfinedTree, variables: Mapping[str, str], strategy: str | None
) -> ScratchShell:
    """The best there is for the commands of `tree`, or the strategy that was asked for."""
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(
            f"no strategy is called {strategy!r}", hint=f"one of {', '.join(STRATEGIES)}"
        )
    if strategy == DIRECT:
        return ScratchShell(scratch, tree, variables, "asked for")
    if strategy not in (None, COPY):
        raise MissingDependencyError(
            f"a replay works on a private copy of the tree: {strategy} has nothing to protect",
            hint=f"--in-place-of-world {COPY} or {DIRECT}, or leave the option out",
        )
    why = _why_no_world(tree)
    if not why:
        return WorldShell(scratch, tree, variables)
    if strategy is not None:
        raise MissingDependencyError(
            f"no world can be made for this replay: {why}", hint="`substrate doctor` says more"
        )
    return ScratchShell(scratch, tree, variables, why)


def _why_no_world(tree: ConfinedTree) -> str:
    if not sys.platform.startswith("linux"):
        return f"there are no worlds on {sys.platform}"
    seen_at = tree.recorded_root or str(tree.directory)
    if not seen_at.startswith("/") or os.path.normpath(seen_at) in _NOT_AT:
        return f"the tree cannot be put at {seen_at}"
    from substrate.world.probe import finding

    found = finding("overlay")
    return "" if found.works else found.why


class WorldShell(ScratchShell):
    """Runs commands in a world in which the tree is where it was recorded."""

    def __init__(self, scratch: Path, tree: ConfinedTree, variables: Mapping[str, str]) -> None:
        from substrate.world.scratch import ScratchWorld

        super().__init__(scratch, tree, variables)
        self._seen_at = Path(os.path.normpath(tree.recorded_root or tree.directory))
        self._world = ScratchWorld(tree.directory, self._seen_at)
        self.isolation: Isolation = self._world.isolation

    @property
    def mapped(self) -> tuple[tuple[bytes, bytes], ...]:
        return ()

    def start(self, command: CommandToRun, streams: Streams) -> Done:
        from substrate.world.network.choose import network_for

        network = network_for("open")
        try:
            finished = self._world.run(
                command.argv, self._inside(command.cwd), command.env, Stdio(*streams),
                command.timeout_s, network,
            )  # fmt: skip
        except SubstrateError as error:
            return Done(125, False, error.message)
        scopes = network.finish() if network is not None else ()
        return Done(finished.exit_code, finished.timed_out, finished.error, scopes)

    def _inside(self, cwd: Path) -> Path:
        return self._seen_at / cwd.relative_to(self.tree.directory)
