"""Run one recorded command again, from the tree it started from, and compare.

The command is the exact one of the private ledger, not the redacted one of the trace; the tree is
the recorded one, not the live one, which this never touches.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate import __version__
from substrate.errors import HistoryRefusedError, NotFoundError
from substrate.history.ledger import Entry
from substrate.history.resolve import resolve
from substrate.history.store import HistoryStore
from substrate.packs.manifest import Environment as PackEnvironment
from substrate.packs.manifest import Manifest, Model, Pack
from substrate.packs.objects import Objects
from substrate.packs.replay_steps import StepReport
from substrate.recorder.pack_session import build
from substrate.recorder.place import Place
from substrate.recorder.replay_pack import Replayed, ReplayOptions, replay_from
from substrate.recorder.session_steps import SessionBuilder
from substrate.system import files, platform
from substrate.trace.reader import TraceReader


class ReplayedSpan(NamedTuple):
    entry: Entry
    step: StepReport
    replayed: Replayed
    #: What the comparison could not take into account.
    warnings: tuple[str, ...]


def replay_span(place: Place, named: str, options: ReplayOptions) -> ReplayedSpan:
    """Run the command that `named` names (a span, a command, ``@``, …) once more."""
    there = _place_that_knows(place, named)
    with there.existing_history() as history:
        entry = _entry(history, named, place.session)
        with _scratch() as scratch:
            objects = Objects(scratch / "objects", scratch)
            (scratch / "objects").mkdir()
            builder = build(there, history, objects, [entry], None, exact=True)
            pack = Pack("", _manifest(builder, objects))
            replayed = replay_from(objects, pack, place.environment, options)
    return ReplayedSpan(entry, replayed.steps[0], replayed, tuple(_warnings(builder, entry)))


def _place_that_knows(place: Place, named: str) -> Place:
    """Here, or, if `named` is a span of another workspace, there."""
    try:
        with place.existing_history() as history:
            resolve(history, named, place.session)
            return place
    except (NotFoundError, HistoryRefusedError):
        elsewhere = _workspace_of(place, named)
        if elsewhere is None:
            raise
        return elsewhere


def _workspace_of(place: Place, span_id: str) -> Place | None:
    if not span_id.startswith("spn_"):
        return None
    for span in TraceReader(place.environment.trace_path).find(span_id):
        workspace = Path(str(span.get("workspace")))
        if workspace.is_dir() and workspace != place.workspace.root:
            return Place.at(workspace, place.environment, place.session, place.agent_id)
    return None


def _entry(history: HistoryStore, named: str, session: str | None) -> Entry:
    target = resolve(history, named, session)
    entry = target.entry
    if entry is None or entry.kind != "command":
        what = entry.kind if entry else "no entry of the log"
        raise NotFoundError(
            f"{named} is {what}, not a command", hint="`substrate log` lists the commands"
        )
    if target.holder is not None:
        raise NotFoundError(
            f"the tree that {entry.command_id} started from is gone: it was compacted into "
            f"{target.holder.command_id}",
            hint=f"`ctx pack --session {entry.session_id}` and `ctx replay` repeat the session",
        )
    return entry


def _manifest(builder: SessionBuilder, objects: Objects) -> Manifest:
    return Manifest(
        created=builder.steps[0].timestamp,
        model=Model("unknown"),
        system_prompt=objects.write(b"").ref,
        prompts=(),
        inputs=builder.all_inputs(),
        steps=tuple(builder.steps),
        outputs=(),
        environment=PackEnvironment(platform.os_name(), f"substrate {__version__}"),
    )


def _warnings(builder: SessionBuilder, entry: Entry) -> Iterator[str]:
    if builder.without_stdout:
        yield "what it printed then was not kept: exit status and changed files are compared"
    if builder.without_span:
        yield "its environment is no longer in the trace: the present one was used"
    if builder.steps[0].parameters.get("stdin_kind"):
        yield "what it could read from stdin was not kept: it was empty now"
    if entry.detail.get("beside"):
        yield "other commands ran beside it: their changes may be counted as its own"


@contextmanager
def _scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="substrate-replay-"))
    try:
        yield Path(os.path.realpath(directory))
    finally:
        files.remove_tree(directory)
