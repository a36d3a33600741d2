"""Begin a command: bring in what earlier ones left, then announce it in the ledger."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from substrate.history.arrival import held_world_rows
from substrate.history.record import Running, record_entry
from substrate.history.store import HistoryStore
from substrate.recorder.agent_events import calling_agent
from substrate.recorder.arrival import new_world
from substrate.recorder.command import background_baseline, outside_edits
from substrate.recorder.command.attempt_variables import attempt_of
from substrate.recorder.command.command_request import CommandRequest
from substrate.recorder.command.finish_command import exact
from substrate.recorder.command.repair_and_retry import mending
from substrate.recorder.session_context import Place
from substrate.system import Question
from substrate.workspace import known_projects
from substrate.world import Layer


class Begun(NamedTuple):
    running: Running
    #: Messages on earlier commands.
    earlier: list[str]
    #: The worlds of earlier commands with processes that still run.
    beside: tuple[Layer, ...]


def begin(place: Place, request: CommandRequest, text: str, *, is_direct: bool) -> Begun:
    """Announce the command. A damaged history is repaired first: it must not stop all work."""
    begun, mended = mending(place, lambda: _announced(place, request, text, is_direct=is_direct))
    known_projects.note(place.environment.substrate_home, place.workspace.root)
    return begun._replace(earlier=[*mended, *begun.earlier])


def _announced(place: Place, request: CommandRequest, text: str, *, is_direct: bool) -> Begun:
    # First of all: the watcher prepares its answer while we do the rest.
    asked = None if is_direct else outside_edits.ask(place)

    def announced(store: HistoryStore) -> Running:
        with store.writing("record a command"):
            _check_ready(store)
            return record_entry.begin(
                store, session=place.session or calling_agent.session_of(place.environment),
                agent_id=place.agent_id, command=text, exact=exact(request),
                world=None if is_direct else _in_world(place, store, request, asked),
                is_live=request.live and is_direct,
                # If the world was written to before the command began, its base must exist already.
                baseline_later=request.made_from is None and background_baseline.may_wait(store),
            )  # fmt: skip

    earlier: list[str] = []
    beside: tuple[Layer, ...] = ()
    try:
        # Not Path.exists: it raises on another user's store, which is reported properly later.
        if not is_direct and os.path.exists(place.workspace.store / "index" / "history.db"):
            with place.existing_history() as store:
                if not held_world_rows.may_be_detached(store):
                    return Begun(announced(store), store.take_said(), beside)
            earlier, beside = _collected(place)
        with place.history() as store:
            return Begun(announced(store), earlier + store.take_said(), beside)
    finally:
        if asked is not None:
            asked.close()


def _check_ready(store: HistoryStore) -> None:
    """Check what the end of the command needs: repair damage now, not after it has run."""
    if store.tip_commit is not None:
        store.tip()
    with suppress(FileExistsError):
        os.mkdir(store.dir / "journal", 0o700)


def _in_world(
    place: Place, store: HistoryStore, request: CommandRequest, asked: Question | None
) -> record_entry.InWorld:
    found = new_world(place, store, asked, request.world_id)
    return found._replace(made_from=request.made_from, about=attempt_of(place.environment))


def _collected(place: Place) -> tuple[list[str], tuple[Layer, ...]]:
    """First bring in the changes of processes that outlived an earlier command and have ended."""
    from substrate.recorder.arrival import collect_detached

    notes, running = collect_detached(place)
    if running:  # the daemon may be another one than the one that was told
        outside_edits.tell_left_running(place)
    return notes, running
