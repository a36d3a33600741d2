"""What the commands of a replay run in: a world where there is one, else a plain directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from substrate.errors import MissingDependencyError, UsageError
from substrate.packs.confined_tree import ConfinedTree
from substrate.recorder.scratch_shell import ScratchShell
from substrate.world.protocol import STRATEGIES

DIRECT = "direct"


def shell_for(
    scratch: Path, tree: ConfinedTree, variables: Mapping[str, str], strategy: str | None
) -> ScratchShell:
    """The best there is for the commands of `tree`, or the strategy that was asked for."""
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(
            f"no strategy is called {strategy!r}", hint=f"one of {', '.join(STRATEGIES)}"
        )
    if strategy in (None, DIRECT):
        why = "asked for" if strategy else "this version has no other strategy"
        return ScratchShell(scratch, tree, variables, why)
    raise MissingDependencyError(
        f"a replay cannot use the strategy {strategy} here", hint="leave the option out"
    )
