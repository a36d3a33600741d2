"""What the commands of a replay run in: a world if available, else a plain directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import MissingDependencyError, SubstrateError, UsageError
from substrate.packs.tools import ConfinedTree
from substrate.recorder.replay.replay_shell import (
    DIRECT_REASON,
    CommandToRun,
    Done,
    ScratchShell,
    Streams,
)
from substrate.system.process import Stdio
from substrate.world import STRATEGIES, Isolation
from substrate.world.network import rules

if TYPE_CHECKING:
    from substrate.world.strategies import ScratchWorld

DIRECT, COPY = "direct", "copy-diff"
OPEN = "open"
_TRIAL_S = 60.0
#: Shown at one of these paths, the tree would hide what commands need.
_NOT_AT = frozenset({"/", "/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/run"})
_NOT_BELOW = ("/proc", "/sys")


def shell_for(
    scratch: Path,
    tree: ConfinedTree,
    variables: Mapping[str, str],
    strategy: str | None,
    network: str = OPEN,
) -> ScratchShell:
    """The best shell for the commands of `tree`, or the strategy that was asked for.

    A `network` other than open requires a world: without one it cannot be enforced.
    """
    rules.parse(network)  # report a usage error before anything is laid out
    is_held = network != OPEN
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(
            f"no strategy is called {strategy!r}", hint=f"one of {', '.join(STRATEGIES)}"
        )
    if strategy == DIRECT and is_held:
        raise UsageError(
            f"--net {network} takes a world, and {DIRECT} is none", hint="leave out one of them"
        )
    if strategy == DIRECT:
        return ScratchShell(scratch, tree, variables, "asked for")
    if strategy not in (None, COPY):
        raise MissingDependencyError(
            f"a replay works on a private copy of the tree: {strategy} has nothing to protect",
            hint=f"--in-place-of-world {COPY} or {DIRECT}, or leave the option out",
        )
    why = _why_no_world()
    if not why:
        required = is_held or strategy is not None
        return WorldShell(scratch, tree, variables, network, required=required)
    if is_held or strategy is not None:
        raise MissingDependencyError(
            f"no world can be made for this replay: {why}", hint="`substrate doctor` says more"
        )
    return ScratchShell(scratch, tree, variables, why)


def _why_no_world() -> str:
    if not sys.platform.startswith("linux"):
        return f"there are no worlds on {sys.platform}"
    from substrate.world.capabilities import finding

    found = finding("overlay")
    return "" if found.works else found.why


def _places(tree: ConfinedTree) -> list[Path]:
    """Paths at which a world may show the tree, best first.

    The last one is always possible: a pack must not escape its world by naming an impossible path.
    """
    wanted = os.path.normpath(tree.recorded_root) if tree.recorded_root else ""
    shut = wanted in _NOT_AT or any(Path(wanted).is_relative_to(top) for top in _NOT_BELOW)
    recorded = [Path(wanted)] if wanted.startswith("/") and not shut else []
    return [*recorded, tree.directory]


class WorldShell(ScratchShell):
    """Runs commands in a world that shows the tree at its recorded path, if possible.

    A trial before the first command finds the world that works; all commands use it.
    """

    def __init__(
        self, scratch: Path, tree: ConfinedTree, variables: Mapping[str, str], network: str,
        *, required: bool,
    ) -> None:  # fmt: skip
        super().__init__(scratch, tree, variables)
        self._network = network
        self._seen_at = tree.directory
        self._required = required
        self._world: ScratchWorld | None = None
        self._settled = False

    def settle(self) -> None:
        """Find out what works: a guarded world, a plain one, or none."""
        if self._settled:
            return
        self._settled = True
        from substrate.world.strategies import ScratchWorld

        home = self._variables.get("HOME", "")
        refusals: list[str] = []
        for tier, place in product(("guarded", "workspace"), _places(self.tree)):
            world = ScratchWorld(self.tree.directory, place, tier, home)
            refusal = self._refusal(world, place)
            if not refusal:
                self._world, self._seen_at = world, place
                said = world.isolation
                reason = "; ".join([said.reason, *refusals])
                self.isolation = said._replace(network=self._network, reason=reason)
                return
            refusals.append(f"no world of tier {tier}: {refusal}")
        if self._required:
            raise MissingDependencyError("; ".join(refusals), hint="`substrate doctor` says more")
        reason = "; ".join([*refusals, DIRECT_REASON])
        self.isolation = Isolation("direct", "none", "open", reason)

    def _refusal(self, world: ScratchWorld, place: Path) -> str:
        """Why such a world cannot be made; empty if it can."""
        with open(os.devnull, "r+b") as null:
            fd = null.fileno()
            env = {"PATH": "/usr/bin:/bin"}
            try:
                world.run(("true",), place, env, Stdio(fd, fd, fd), _TRIAL_S)
            except SubstrateError as error:
                return error.message
        return ""

    @property
    def mapped(self) -> tuple[tuple[bytes, bytes], ...]:
        self.settle()
        moved = self._world is None or self._seen_at == self.tree.directory
        return super().mapped if moved else ()

    def start(self, command: CommandToRun, streams: Streams) -> Done:
        self.settle()
        if self._world is None:
            return super().start(command, streams)
        from substrate.world.network import network_for

        network = network_for(self._network)
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
