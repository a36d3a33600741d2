"""Replay a pack: lay out its tree, run each step in it, and compare each result."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate import __version__
from substrate.errors import DamagedStoreError
from substrate.packs.format import NO_TIME, Manifest, Pack, instant_ns
from substrate.packs.replay import (
    BASE_NAME,
    BaseTree,
    Options,
    OutputReport,
    StepReplay,
    StepReport,
    compare_outputs,
    fidelity,
    lay_out,
    read_base,
)
from substrate.packs.store import Objects, Store
from substrate.packs.tools import (
    BUILT_IN,
    ConfinedTree,
    Limits,
    Registry,
    Tool,
    ToolContext,
    TreeState,
    own_tools,
)
from substrate.recorder.packing import redacted_bytes
from substrate.recorder.replay import replay_world, tool_trust, tool_versions
from substrate.recorder.replay.replay_shell import ScratchShell, known_variables
from substrate.recorder.replay.tool_versions import Drift
from substrate.system import Environment
from substrate.system.files import files
from substrate.system.process import process_identity
from substrate.world import Isolation

Progress = Callable[[int, int], None]


class ReplayOptions(NamedTuple):
    #: Run non-deterministic steps, too.
    rerun: bool = False
    #: The timeout of each step.
    timeout_s: float = 600.0
    #: Variables that the user sets: a secret in place of its placeholder.
    variables: Mapping[str, str] = {}
    #: The required strategy, or `None` for the best available.
    strategy: str | None = None
    #: Keep the scratch directory.
    keep: bool = False
    #: What the commands may connect to: open, off or allow:HOST:PORT,…
    network: str = replay_world.OPEN
    #: Trust the programs of this project's configuration, now and in later replays.
    trust_tools: bool = False


class Replayed(NamedTuple):
    ref: str
    fidelity: str
    steps: tuple[StepReport, ...]
    outputs: tuple[OutputReport, ...]
    isolation: Isolation
    drift: tuple[Drift, ...] = ()
    unchecked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: Where the tree is, if it was kept.
    kept: Path | None = None


def replay_pack(
    store: Store,
    pack: Pack,
    environment: Environment,
    options: ReplayOptions = ReplayOptions(),  # noqa: B008  a tuple: immutable
    progress: Progress = lambda done, total: None,
) -> Replayed:
    """Replay a pack in a private tree. It neither reads nor writes a live tree."""
    own = own_tools(store.config(), store.directory.parent)
    used = _own_used(pack.manifest, own, options)
    if used:
        tool_trust.require(environment, store, used, given=options.trust_tools)
    return replay_from(store.objects, pack, environment, options, own, progress)


def replay_from(
    objects: Objects,
    pack: Pack,
    environment: Environment,
    options: ReplayOptions,
    own: Mapping[str, Tool] | None = None,
    progress: Progress = lambda done, total: None,
) -> Replayed:
    """Replay a pack that need not be listed in a store: only its objects must exist."""
    manifest = pack.manifest
    base = base_of(manifest, objects)
    with _scratch(options.keep) as scratch:
        tree_dir = scratch / "tree"
        tree_dir.mkdir(mode=0o755)
        laid = lay_out(tree_dir, base, manifest.inputs, objects.chunks, _before(manifest))
        tree = ConfinedTree(tree_dir, base.root)
        variables = known_variables(environment, options.variables)
        shell = replay_world.shell_for(scratch, tree, variables, options.strategy, options.network)
        watch = TreeState(tree_dir) if _records_changes(manifest) else None
        context = ToolContext(tree, shell.run, Limits(timeout_s=options.timeout_s), objects.read)
        replay = StepReplay(
            objects, context, Registry(own), watch,
            Options(options.rerun, lambda: shell.mapped, redacted_bytes),
        )  # fmt: skip
        steps = []
        for number, step in enumerate(manifest.steps):
            progress(number, len(manifest.steps))
            steps.append(replay.run(step))
        outputs = compare_outputs(manifest, objects, context)
        drift, unchecked = _drift(manifest, variables)
        notes = (*laid.notes, *_shell_notes(manifest, shell), *_own_notes(manifest, own, options))
    return Replayed(
        pack.ref, fidelity(steps, outputs), tuple(steps), tuple(outputs), shell.isolation,
        tuple(drift), tuple(unchecked), notes,
        tree_dir if options.keep else None,
    )  # fmt: skip


def base_of(manifest: Manifest, objects: Objects) -> BaseTree:
    """What the pack records about the tree it started from."""
    for item in manifest.inputs:
        if item.name == BASE_NAME:
            try:
                return read_base(objects.read(item.content_ref))
            except ValueError as error:
                raise DamagedStoreError(
                    f"the pack's tree cannot be laid out: {error}",
                    hint="pack the session again; `ctx fsck` checks the store",
                ) from error
    return BaseTree()


def _before(manifest: Manifest) -> int:
    """A time before the first step for the files of the base tree, as in the recording."""
    times = (step.timestamp for step in manifest.steps if step.timestamp != NO_TIME)
    before = instant_ns(next(times, "2001-09-09T01:46:40Z")) - 3600 * 10**9
    # Clamp it: every file system can store this time, whatever the log claims.
    return min(max(before, 0), (2**31 - 1) * 10**9)


def _records_changes(manifest: Manifest) -> bool:
    return any("changed" in step.result for step in manifest.steps)


def _drift(manifest: Manifest, variables: Mapping[str, str]) -> tuple[list[Drift], list[str]]:
    """Drift of the environment: the system and the programs."""
    recorded = manifest.environment
    out = []
    here = process_identity.os_name()
    if recorded.os not in ("", "unknown", here):
        out.append(Drift("os", recorded.os, here))
    runtime = f"substrate {__version__}"
    if recorded.runtime.startswith("substrate ") and recorded.runtime != runtime:
        out.append(Drift("runtime", recorded.runtime, runtime))
    found, unchecked = tool_versions.drift(recorded.tool_versions, variables.get("PATH", ""))
    return out + found, unchecked


def _shell_notes(manifest: Manifest, shell: ScratchShell) -> Iterator[str]:
    ran = any(BUILT_IN.get(step.tool) == "shell" and step.deterministic for step in manifest.steps)
    if ran and shell.mapped:
        now, then = shell.mapped[0]
        yield (
            f"the tree could not be put where it was recorded, {os.fsdecode(then)}: "
            f"that path is read as {os.fsdecode(now)} in commands and in what they print"
        )
    unknown = sum(
        step.parameters.get("stdin_kind") in ("pipe", "file", "socket", "terminal")
        for step in manifest.steps
    )
    if unknown:
        counted = "1 command" if unknown == 1 else f"{unknown} commands"
        yield f"{counted} could read a stdin that was not kept: in the replay it is empty"


def _own_notes(
    manifest: Manifest, own: Mapping[str, Tool] | None, options: ReplayOptions
) -> Iterator[str]:
    """A project's own tools are programs, too, and run outside the reported isolation."""
    ran = _own_used(manifest, own or {}, options)
    if ran:
        held = "" if options.network == replay_world.OPEN else f" and --net {options.network}"
        yield f"tools of .ctx/config.json ran outside any world{held}: {', '.join(ran)}"


def _own_used(manifest: Manifest, own: Mapping[str, Tool], options: ReplayOptions) -> list[str]:
    run = {step.tool for step in manifest.steps if step.deterministic or options.rerun}
    return sorted(own.keys() & run)


@contextmanager
def _scratch(keep: bool) -> Iterator[Path]:
    """A private directory, removed afterwards unless `keep`."""
    directory = Path(tempfile.mkdtemp(prefix="substrate-replay-"))
    try:
        yield Path(os.path.realpath(directory))
    finally:
        if not keep:
            files.remove_tree(directory)
