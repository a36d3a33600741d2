"""Which world a command runs in: the best that works here and does what was asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from substrate.errors import MissingDependencyError, UsageError, WorldFailedError
from substrate.system import environment
from substrate.system.files import folds_names, real_path
from substrate.world.capabilities import Finding, finding, probe
from substrate.world.interface import (
    STRATEGIES,
    TIERS,
    Isolation,
    Layer,
    RunOutcome,
    RunRequest,
    Wanted,
    World,
)
from substrate.world.strategies import DirectWorld

#: File systems that cannot hold an overlay's upper, or from which no rename into the workspace is
#: possible.
_NO_UPPER = frozenset(
    (b"overlay", b"nfs", b"nfs4", b"9p", b"cifs", b"smb3", b"virtiofs", b"vfat", b"exfat")
)


_NO_OVERLAY = "no overlay can be had here: each command works on a copy"
#: A view distinguishes `a.txt` from `A.TXT`, but the file system below it does not.
_NAMES_FOLD = "names fold here (a.txt and A.TXT are one file), which no view of the files can show"


def choose_world(wanted: Wanted) -> World:
    """The best world for `wanted`.

    Raises `MissingDependencyError` if it was required and is not available; otherwise a weaker one
    is used, and `Isolation.reason` says why.
    """
    _check(wanted)
    if wanted.tier == "none" or wanted.strategy == "direct":
        return DirectWorld(wanted.why)
    worlds, refusals = _candidates(wanted)
    if wanted.required:
        if not worlds:
            why = "; ".join(refusals) or "no strategy does it"
            raise MissingDependencyError(
                f"no world of tier {wanted.tier} can be had here: {why}", hint=_fix(wanted)
            )
        return Falling(worlds) if len(worlds) > 1 else worlds[0]
    return Falling([*worlds, DirectWorld("; ".join(refusals))])


class Falling:
    """The first of several worlds that can be made; reports why the others failed."""

    def __init__(self, worlds: list[World]) -> None:
        self._worlds = worlds

    @property
    def isolation(self) -> Isolation:
        return self._worlds[0].isolation

    def run(self, request: RunRequest) -> RunOutcome:
        failed: list[str] = []
        for world in self._worlds[:-1]:
            try:
                return _with_reason(world.run(request), failed)
            except WorldFailedError as error:
                failed.append(f"{world.isolation.strategy}: {error.message}")
        return _with_reason(self._worlds[-1].run(request), failed)

    def discard(self, layer: Layer) -> None:
        self._worlds[0].discard(layer)


def _with_reason(outcome: RunOutcome, failed: list[str]) -> RunOutcome:
    if not failed:
        return outcome
    reasons = [*failed, outcome.isolation.reason]
    reason = "; ".join(part for part in reasons if part)
    return outcome._replace(isolation=outcome.isolation._replace(reason=reason))


def _check(wanted: Wanted) -> None:
    for value, known, what in (
        (wanted.tier, TIERS, "tier"),
        (wanted.strategy or STRATEGIES[0], STRATEGIES, "strategy"),
    ):
        if value not in known:
            raise UsageError(f"no such {what}: {value}", hint=f"one of: {', '.join(known)}")


def _candidates(wanted: Wanted) -> tuple[list[World], list[str]]:
    """Worlds that should work, best first, and the reasons against the others."""
    if not sys.platform.startswith("linux"):
        return [], [f"{strategy}: not on {sys.platform}" for strategy in _in_question(wanted)]
    if folds_names(wanted.root, wanted.store):
        return [], [_NAMES_FOLD]
    worlds: list[World] = []
    refusals: list[str] = []
    findings = probe()
    directory = worlds_directory(wanted)
    for strategy in _in_question(wanted):
        for refusal in _refusals(finding(strategy, findings), wanted, directory):
            refusals.append(f"{strategy}: {refusal}")
            break
        else:
            worlds.append(_make(strategy, wanted, directory))
    return worlds, refusals


def _in_question(wanted: Wanted) -> tuple[str, ...]:
    if wanted.strategy:
        return (wanted.strategy,)
    # A copy costs as much as the project is large: only used if a world is required.
    layered = ("overlay", "fuse-overlayfs")
    return (*layered, "copy-diff") if wanted.required else layered


def _refusals(found: Finding, wanted: Wanted, directory: Path) -> Iterator[str]:
    strategy = found.name
    if not found.works:
        yield found.why
    root = real_path(wanted.root)
    if root == "/":
        yield "the workspace is the root directory"
    if strategy == "fuse-overlayfs" and ":" in real_path(directory):
        yield "it cannot keep a layer in a directory whose path has a colon"
    if strategy in ("overlay", "fuse-overlayfs") and os.geteuid() != 0:
        yield from _unprivileged_refusals(root, strategy)


def _unprivileged_refusals(root: str, strategy: str) -> Iterator[str]:
    from substrate.world.process import submounts

    if os.stat(root).st_gid != os.getegid():
        # Only our own ids exist in such a world: files of other ids cannot be copied up.
        yield "the workspace belongs to a group that is not your primary one"
    if strategy == "overlay" and submounts(os.fsencode(root)):
        # The kernel refuses a view that would show what is below another user's mount.
        yield "something is mounted inside the workspace, and you are not root"


def _make(strategy: str, wanted: Wanted, directory: Path) -> World:
    if strategy == "overlay":
        from substrate.world.strategies import OverlayWorld

        return OverlayWorld(wanted, directory, wanted.why)
    if strategy == "fuse-overlayfs":
        from substrate.world.strategies import FuseOverlayWorld

        return FuseOverlayWorld(wanted, directory, wanted.why)
    if strategy == "copy-diff":
        from substrate.world.strategies import CopyWorld

        return CopyWorld(wanted, directory, "" if wanted.strategy else _NO_OVERLAY)
    raise MissingDependencyError(
        f"no world is made with {strategy} in this version",
        hint="`substrate doctor` lists the strategies that work here",
    )


def worlds_directory(wanted: Wanted) -> Path:
    """Where the world's layer goes: beside history, so that changes are applied by rename; in
    `$SUBSTRATE_HOME` where there is no history, or the file system cannot hold a layer."""
    if wanted.store.is_dir() and _file_system(wanted.store) not in _NO_UPPER:
        return wanted.store / "worlds"
    return environment.current().substrate_home / "worlds"


def _file_system(path: Path) -> bytes:
    from substrate.system.linux import mounts

    return mounts.file_system_of(os.fsencode(real_path(path)))


def _fix(wanted: Wanted) -> str:
    if folds_names(wanted.root, wanted.store):
        return "run it with --no-world, or move the project to a file system that keeps case apart"
    found = finding(wanted.strategy or "overlay", probe())
    return f"{found.fix}; `substrate doctor` says more" if found.fix else "run substrate doctor"
