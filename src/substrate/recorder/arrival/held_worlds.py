"""Worlds that wait for a decision: list them, look into them, apply or discard them."""

from __future__ import annotations

import errno
from typing import NamedTuple

from substrate.errors import (
    DiskFullError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.history import held, unclaimed
from substrate.history.file_changes import FileChange, file_changes
from substrate.history.held import Held
from substrate.history.observe import edited
from substrate.history.record import Result, Running
from substrate.history.store import LOCK_TIMEOUT_S, HistoryStore
from substrate.model.paths import RelPath, is_within
from substrate.objects.batch import Batch
from substrate.recorder import worlds
from substrate.recorder.collisions import BOTH_SIDES
from substrate.recorder.place import Place
from substrate.recorder.runs_code import runs_code
from substrate.system import ids
from substrate.workspace.layer import LayerDiff
from substrate.world import fuse_marks, layers
from substrate.world.protocol import Layer


class WorldDiff(NamedTuple):
    world: Held
    files: list[FileChange]
    #: What history leaves out, and what never arrives.
    layer: LayerDiff
    runs_code: list[RelPath]
    #: As git renders it.
    text: bytes
    #: How it would go with applying it now, if that was asked.
    foreseen: worlds.Foreseen | None = None


def list_worlds(place: Place) -> list[Held]:
    with place.existing_history() as store:
        if held.is_unsettled(store) or unclaimed.are_there(store):
            try:
                with store.writing("look after worlds"):
                    pass  # settles what a kill left
            except (SubstrateError, OSError) as error:
                # Whoever wants to know what fills the disk must be told all the same.
                if not is_full(error):
                    raise
        return held.all_held(store)


def diff_world(
    place: Place, text: str, paths: tuple[RelPath, ...] = (), *, foresee: bool = False
) -> WorldDiff:
    """What a waiting world would change, against the state it started from."""
    with place.existing_history() as store, store.writing("look into a world"):
        world = held.find(store, text)
        layer = layer_of(world)
        with store.new_batch() as batch:
            running = _running(world)
            found = worlds.read(store, batch, layer, running)
            changes = [
                c for c in found.changes() if not paths or any(is_within(c.path, p) for p in paths)
            ]
            base = store.snapshot_of(running.base_commit)
            after = edited(batch, base, changes)
            batch.publish()  # for git to read; nothing refers to it, and compaction drops it
            files = file_changes(store, changes)
            shown = store.git.diff_text(base.tree, after.tree, [c.path for c in changes])
            foreseen = _foreseen(place, store, batch, world, found) if foresee else None
        code = runs_code(found.entries, lambda path: worlds.configs(place, layer, path))
        return WorldDiff(world, files, found, code, shown if changes else b"", foreseen)


def _foreseen(
    place: Place, store: HistoryStore, batch: Batch, world: Held, found: LayerDiff
) -> worlds.Foreseen:
    layer = layer_of(world)
    _refuse_running(world, layer)
    return worlds.foresee_bringing_in(place, store, batch, _request(world, layer), found)


def apply_world(place: Place, text: str, *, is_rest: bool = False) -> tuple[Held, worlds.Brought]:
    """Bring it in after all, as an entry of its own; the world goes unless something is left.

    `is_rest`: what processes wrote that outlived their command. Nothing needs no entry.
    """
    with place.existing_history() as store:
        if held.is_unsettled(store):  # what a kill left is known by another name afterwards
            with store.writing("look after worlds"):
                pass
        world = held.find(store, text)
    layer = layer_of(world)
    _refuse_running(world, layer)
    fuse_marks.tidy(layer)
    request = _request(world, layer)._replace(rest_of=world.command_id if is_rest else "")
    brought = worlds.bring_in(place, request)
    if not brought.is_kept:
        layers.remove(layer)
    return world, brought


def _request(world: Held, layer: Layer) -> worlds.Request:
    running = _running(world)._replace(
        command_id=ids.new_id("c"), span_id=ids.new_id("spn"), intent_id=world.intent_id
    )
    detail: dict[str, object] = {
        "world": world.world_id, "of": world.command_id, "outcome": "applied",
    }  # fmt: skip
    return worlds.Request(
        running._replace(command=f"world apply {world.world_id}: {world.command}"),
        layer, Result(0, None, detail), None, is_decided=True,
        knows_collisions=world.reason.startswith(BOTH_SIDES),
    )  # fmt: skip


def collect_detached(place: Place) -> tuple[list[str], tuple[Layer, ...]]:
    """Bring in what processes wrote that outlived their command and have ended since.

    What to tell the user of it, and the worlds where such processes still go on.
    """
    with place.existing_history() as store:
        waiting = [one for one in held.all_held(store) if one.state == "detached"]
    notes: list[str] = []
    running: list[Layer] = []
    for world in waiting:
        try:
            layer = layer_of(world)
            if layers.is_running(layer):
                running.append(layer)
                continue
            _, brought = apply_world(place, world.world_id, is_rest=True)
            notes += brought.notes
            if brought.held:
                notes.append(
                    f"not applied, {brought.held}: `substrate world apply {world.world_id}` or"
                    " `discard` decides"
                )
        except SubstrateError as error:
            notes.append(error.message)
    return notes, tuple(running)


def discard_world(place: Place, text: str) -> Held:
    """Forget it, with all that it holds.

    On a full disk it goes before that is written down: it may be what fills the disk. Killed in
    between, it is listed still, and can be discarded again.
    """
    try:
        return _discard(place, text)
    except (SubstrateError, OSError) as error:
        if not is_full(error):
            raise
    world = _make_room(place, text)
    try:
        return _discard(place, world.world_id)
    except NotFoundError:  # a crashed one without a directory has been settled by now
        return world


def _make_room(place: Place, text: str) -> Held:
    with place.existing_history() as store:
        # Shared: to be named in the lock's file takes room that is not there.
        store.lock.acquire(timeout_s=LOCK_TIMEOUT_S, purpose="", shared=True)
        try:
            world = held.find(store, text)
            _refuse_running(world, layer_of(world) if world.directory else None)
            if world.directory is not None:
                worlds.remove_directory(world.directory)
            return world
        finally:
            store.lock.release()


def is_full(error: SubstrateError | OSError) -> bool:
    """Whether there is no room on the disk, or none left for this user."""
    if isinstance(error, DiskFullError):
        return True
    reason = error if isinstance(error, OSError) else error.__cause__
    return isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT)


def _discard(place: Place, text: str) -> Held:
    with place.existing_history() as store, store.writing("discard a world"):
        world = held.find(store, text)
        _refuse_running(world, layer_of(world) if world.directory else None)
        held.let_go(store, world)
    directory = world.directory
    if directory is not None:
        worlds.remove_directory(directory)
    return world


def layer_of(world: Held) -> Layer:
    """The layer of a world that waits; an error if somebody took it away."""
    for place in world.places:
        for layer in layers.find(place.parent):
            if layer.world_id == world.world_id:
                return layer
    raise WorkspaceError(
        f"the directory of {world.world_id} is gone",
        hint=f"`substrate world discard {world.world_id}` forgets it",
    )


def _refuse_running(world: Held, layer: Layer | None) -> None:
    if world.state == "running" or (layer is not None and layers.is_running(layer)):
        raise RefusedError(
            f"{world.world_id} is still at work: {world.command}",
            hint="wait for the command, or end it",
        )


def _running(world: Held) -> Running:
    return Running(
        world.command_id, "", world.session_id, world.agent_id, world.command,
        world.base_commit, world.intent_id, world_id=world.world_id, places=world.places,
        started_ns=world.started_ns, base_known=world.base_known,
    )  # fmt: skip
