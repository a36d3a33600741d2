"""Run one recorded command again, from the tree it started from, and compare.

The command is the exact one from the private ledger, not the redacted one from the trace. The tree
is the recorded one; the live tree is never touched.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate import __version__
from substrate.errors import HistoryRefusedError, NotFoundError, RefusedError
from substrate.history.query import resolve
from substrate.history.store import Entry, HistoryStore
from substrate.packs.format import Environment as PackEnvironment
from substrate.packs.format import Manifest, Model, Pack
from substrate.packs.replay import StepReport
from substrate.packs.store import Objects
from substrate.recorder.packing import SessionBuilder, build
from substrate.recorder.replay.pack_replay import Replayed, ReplayOptions, replay_from
from substrate.recorder.session_context import Place
from substrate.system.files import files
from substrate.system.process import process_identity
from substrate.trace import TraceReader


class ReplayedSpan(NamedTuple):
    entry: Entry
    step: StepReport
    replayed: Replayed
    #: What the comparison could not take into account.
    warnings: tuple[str, ...]


def replay_span(place: Place, named: str, options: ReplayOptions) -> ReplayedSpan:
    """Run the command that `named` names (a span, a command, ``@``, …) again."""
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
    """This place, or that of another workspace if `named` is one of its spans."""
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
    return _what_ran(history, entry)


def _what_ran(history: HistoryStore, entry: Entry) -> Entry:
    """For a world that was applied later: the command that ran in it, with the applied change.

    The entry of `world apply` has the change; the entry of the held command has its text.
    """
    if "held" in entry.detail and entry.commit is None:
        applied = _applied(history, entry)
        if applied is None:
            raise RefusedError(
                f"{entry.command_id} was held, and its change is not in history: there is nothing"
                " to compare a replay with",
                hint=f"apply it first: `substrate world apply {entry.detail.get('world')}`",
            )
        return _with_change_of(entry, applied)
    of = entry.detail.get("of")
    ran = history.ledger.by_command_id(of) if _is_applied(entry) and isinstance(of, str) else None
    return entry if ran is None else _with_change_of(ran, entry)


def _applied(history: HistoryStore, held: Entry) -> Entry | None:
    for entry in history.ledger.live(session_id=held.session_id, after_pos=held.pos):
        if _is_applied(entry) and entry.detail.get("of") == held.command_id:
            return entry
    return None


def _is_applied(entry: Entry) -> bool:
    return entry.detail.get("outcome") == "applied" and "world" in entry.detail


def _with_change_of(ran: Entry, applied: Entry) -> Entry:
    detail = {name: value for name, value in ran.detail.items() if name != "held"}
    return ran._replace(commit=applied.commit, pos=applied.pos, detail=detail)


def _manifest(builder: SessionBuilder, objects: Objects) -> Manifest:
    return Manifest(
        created=builder.steps[0].timestamp,
        model=Model("unknown"),
        system_prompt=objects.write(b"").ref,
        prompts=(),
        inputs=builder.all_inputs(),
        steps=tuple(builder.steps),
        outputs=(),
        environment=PackEnvironment(process_identity.os_name(), f"substrate {__version__}"),
    )


def _warnings(builder: SessionBuilder, entry: Entry) -> Iterator[str]:
    if entry.detail.get("text_redacted"):
        yield "only its redacted text is kept (history.command_text): it ran without its secrets"
    if builder.without_stdout:
        yield "what it printed then was not kept: exit status and changed files are compared"
    if builder.without_span:
        yield "its environment is no longer in the trace: the present one was used"
    if entry.detail.get("beside"):
        yield "other commands ran beside it: their changes may be counted as its own"


@contextmanager
def _scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="substrate-replay-"))
    try:
        yield Path(os.path.realpath(directory))
    finally:
        files.remove_tree(directory)
