"""From what a machine can do to the tiers it can enforce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from substrate.world.capabilities.machine_probe import Finding, finding


class Promise(NamedTuple):
    """One tier: whether it is available here, with which strategy, or why not."""

    tier: str
    works: bool
    strategy: str = ""
    why: str = ""


def promises(findings: Sequence[Finding]) -> list[Promise]:
    """Every tier, weakest first."""
    kept = [Promise("none", True, "direct")]
    world = _first(findings, ("overlay", "fuse-overlayfs", "copy-diff"))
    kept.append(Promise("workspace", *world))
    kept.append(Promise("guarded", *world))
    seccomp = finding("seccomp", findings)
    if world[0] and not seccomp.works:
        kept.append(Promise("full", False, why=f"seccomp: {seccomp.why}"))
    else:
        kept.append(Promise("full", *world))
    return kept


def _first(findings: Sequence[Finding], strategies: Sequence[str]) -> tuple[bool, str, str]:
    refusals = []
    for strategy in strategies:
        found = finding(strategy, findings)
        if found.works:
            return True, strategy, ""
        refusals.append(f"{strategy}: {found.why}")
    return False, "", "; ".join(refusals)
