"""Held worlds: list them, show their changes, apply or discard them."""

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
from substrate.history.arrival import ARRIVE, Held, discarded_worlds, held_world_rows, orphan_worlds
from substrate.history.maintenance import crash_recovery
from substrate.history.query import FileChange, file_changes
from substrate.history.record import Result, edited, record_entry
from substrate.history.reversal import ChangeHunk
from substrate.history.store import LOCK_TIMEOUT_S, HistoryStore
from substrate.model import RelPath, is_of_both_sides
from substrate.objects.store import Batch
from substrate.recorder.arrival import bring_in
from substrate.recorder.arrival.code_paths import code_paths
from substrate.recorder.arrival.world_parts import WHOLE, Selection, check_discard, divide, hunks_in
from substrate.recorder.command import bring_in as bring_in_world
from substrate.recorder.session_context import Place
from substrate.system import ids
from substrate.workspace.apply import LayerDiff
from substrate.world import Layer
from substrate.world.layer import layer_dirs
from substrate.world.strategies import fuse_marks


class WorldDiff(NamedTuple):
    world: Held
    files: list[FileChange]
    #: Also has excluded paths, and paths that never arrive.
    layer: LayerDiff
    runs_code: list[RelPath]
    #: As git renders it.
    text: bytes
    #: What applying it now would do, if that was requested.
    foreseen: bring_in.Foreseen | None = None
    #: If they were requested.
    hunks: tuple[ChangeHunk, ...] = ()
    #: Of the files, as they would be.
    size_bytes: int = 0


def list_worlds(place: Place) -> list[Held]:
    """List the held and running worlds. Changes nothing.

    A world that no command in the ledger accounts for is listed as the next call that writes will
    record it.
    """
    with place.existing_history() as store:
        arriving = {
            str(one.payload.get("running_intent", ""))
            for one in store.ledger.intents() if one.kind == ARRIVE
        }  # fmt: skip
        known = [
            one for one in held_world_rows.all_held(store)
            if one.intent_id not in arriving and not _holds_nothing(store, one)
        ]  # fmt: skip
        others = [orphan_worlds.as_waiting(path) for path in crash_recovery.unclaimed_worlds(store)]
        return [*known, *(one for one in others if one is not None)]


def _holds_nothing(store: HistoryStore, world: Held) -> bool:
    """Whether a command was killed before it changed anything: the next writer drops it."""
    if world.state != "crashed" or world.causes:
        return False
    return world.directory is None or held_world_rows.is_empty(world.directory, store.root)


def diff_world(
    place: Place, text: str, selection: Selection = WHOLE, *, foresee: bool = False,
    hunks: bool = False,
) -> WorldDiff:  # fmt: skip
    """What a held world, or the selected part of it, would change, against its base."""
    with place.existing_history() as store, store.rehearsing("look into a world"):
        _take_up(store)
        world = held_world_rows.find(store, text)
        layer = layer_of(world)
        with store.new_batch() as batch:
            running = world.running
            if not running.base_commit:  # killed before the baseline was taken
                running = running._replace(base_commit=store.tip_commit or b"")
            read = bring_in.read(store, batch, layer, running)
            selection = _meaning(world, selection)
            found = divide(batch, read, world.parts, selection, world.world_id).taken
            changes = found.changes()
            base = store.snapshot_of(running.base_commit)
            after = edited(batch, base, changes)
            batch.publish()  # for git to read; nothing refers to it, and compaction drops it
            files = file_changes(store, changes)
            shown = store.git.diff_text(base.tree, after.tree, [c.path for c in changes])
            foreseen = _foreseen(place, store, batch, world, found) if foresee else None
            shown_hunks = tuple(hunks_in(batch, found)) if hunks else ()
        code = code_paths(place, layer, found.entries)
        text_diff = shown if changes else b""
        size_bytes = sum(len(store.objects.read_blob(f.new.oid)) for f in files if f.new.oid)
        return WorldDiff(world, files, found, code, text_diff, foreseen, shown_hunks, size_bytes)


def found(place: Place, text: str) -> Held:
    """The held world with this id. Changes nothing."""
    with place.existing_history() as store:
        return held_world_rows.find(store, text)


def _meaning(world: Held, selection: Selection) -> Selection:
    """Of a discarded world, also the paths that were discarded before the others."""
    return selection._replace(with_discarded=world.state == held_world_rows.DISCARDED)


def _take_up(store: HistoryStore) -> None:
    """In a dry run: hold orphan worlds as the next call that writes would."""
    record_entry.ensure_baseline(store)
    for path in crash_recovery.unclaimed_worlds(store):
        orphan_worlds.keep(store, path)


def _foreseen(
    place: Place, store: HistoryStore, batch: Batch, world: Held, found: LayerDiff
) -> bring_in.Foreseen:
    layer = layer_of(world)
    _refuse_running(world, layer)
    return bring_in.foresee_bringing_in(
        place, store, batch, _request(world, layer, Selection()), found
    )


def apply_world(
    place: Place, text: str, selection: Selection = WHOLE, *, is_rest: bool = False
) -> tuple[Held, bring_in.Brought]:
    """Apply a held world, or a part of it, as an entry of its own.

    The world is removed unless something is left: what was not selected stays held. `is_rest`: the
    changes are from processes that outlived their command; no changes, no entry.
    """
    with place.existing_history() as store:
        # Settle first: a world that a kill left gets a new intent by that.
        if held_world_rows.is_unsettled(store) or orphan_worlds.are_there(store):
            with store.writing("look after worlds"):
                pass
        if selection.paths or selection.hunks is not None:
            _record_outside_edits(place, store)
        world = held_world_rows.find(store, text)
    layer = layer_of(world)
    _refuse_running(world, layer)
    fuse_marks.tidy(layer)
    request = _request(world, layer, selection)._replace(
        rest_of=world.command_id if is_rest else "", waiting=world,
    )  # fmt: skip
    brought = bring_in_world(place, request)
    if world.state == held_world_rows.DISCARDED and not brought.causes:
        with place.existing_history() as store, store.writing("apply a world"):
            discarded_worlds.was_applied(store, world)
    if not brought.is_kept:
        layer_dirs.remove(layer)
    return world, brought


def _record_outside_edits(place: Place, store: HistoryStore) -> None:
    """Record what other processes changed, before a part is merged with it.

    The command saw edits that history did not know yet: in its layer they look like its own. A part
    without them would take them out of the tree.
    """
    from substrate.recorder.command import outside_edits  # it imports this module

    with store.writing("record edits made outside"):
        outside_edits.agree(place, store)


def check_ended(world: Held) -> None:
    """Raise `RefusedError` if processes still run in the world."""
    _refuse_running(world, layer_of(world))


def _request(world: Held, layer: Layer, selection: Selection) -> bring_in.Request:
    running = world.running._replace(
        command_id=ids.new_id("c"), span_id=ids.new_id("spn"), intent_id=world.intent_id
    )
    detail: dict[str, object] = {
        "world": world.world_id, "of": world.command_id, "outcome": "applied",
    }  # fmt: skip
    return bring_in.Request(
        running._replace(
            command=f"world apply {world.world_id}{selection.words}: {world.command}"
        ),
        layer, Result(0, None, detail), None, is_decided=True,
        knows_collisions=is_of_both_sides(world.causes),
        selection=_meaning(world, selection),
    )  # fmt: skip


def collect_detached(place: Place) -> tuple[list[str], tuple[Layer, ...]]:
    """Bring in what processes wrote that outlived their command and have ended since.

    Returns notes for the user, and the worlds where such processes are still running.
    """
    with place.existing_history() as store:
        waiting = [one for one in held_world_rows.all_held(store) if one.state == "detached"]
    notes: list[str] = []
    running: list[Layer] = []
    for world in waiting:
        try:
            layer = layer_of(world)
            if layer_dirs.is_running(layer):
                running.append(layer)
                continue
            _, brought = apply_world(place, world.world_id, is_rest=True)
            notes += brought.with_version
            if brought.causes:
                notes.append(
                    f"not applied, {brought.held}: `substrate world apply {world.world_id}` or"
                    " `discard` decides"
                )
        except NotFoundError:
            continue  # another call has brought it in, and has told its caller
        except SubstrateError as error:
            notes.append(error.message)
    return notes, tuple(running)


def discard_parts(place: Place, text: str, paths: tuple[RelPath, ...]) -> Held:
    """Discard some paths of a held world; the rest stays held.

    They stay in the world's layer, so that `apply_world` can still apply them by name. If nothing
    else is left, the world is discarded as a whole.
    """
    with place.existing_history() as store, store.writing("discard a part of a world"):
        world = held_world_rows.find(store, text)
        layer = layer_of(world)
        _refuse_running(world, layer)
        if world.state == held_world_rows.DISCARDED:
            raise RefusedError(
                f"{world.world_id} is discarded already",
                hint=f"`substrate world discard {world.world_id}` removes all of it at once",
            )
        with store.new_batch() as batch:
            diff = bring_in.read(store, batch, layer, world.running)
            parts = world.parts.with_discarded(paths)
            check_discard(diff, parts.discarded, world.world_id)
            left = divide(batch, diff, parts, Selection(), world.world_id)
        held_world_rows.discard_part(store, world, paths)
        if not any(one.old != one.new for one in left.taken.entries):
            discarded_worlds.put_aside(store, held_world_rows.find(store, world.world_id))
        return world


def list_discarded(place: Place) -> list[Held]:
    """Worlds that were discarded and can still be applied."""
    with place.existing_history() as store:
        return held_world_rows.discarded(store)


def discard_world(place: Place, text: str) -> Held:
    """Put a world aside: it can still be applied until it expires, by the rules of the trash.

    A second discard, or a disk without room for it, removes it; then the result has no directory.
    On a full disk it is removed before the ledger is written: it may be what fills the disk. After
    a kill in between it is still listed, and can be discarded again.
    """
    try:
        return _discard(place, text)
    except (SubstrateError, OSError) as error:
        if not is_full(error):
            raise
    world = _make_room(place, text)
    try:
        return _discard(place, world.world_id)
    except NotFoundError:  # a crashed world without a directory has been settled by now
        return world


def _make_room(place: Place, text: str) -> Held:
    with place.existing_history() as store:
        # Shared: writing our name into the lock's file would need free disk space.
        store.lock.acquire(timeout_s=LOCK_TIMEOUT_S, purpose="", shared=True)
        try:
            world = held_world_rows.find(store, text)
            _refuse_running(world, layer_of(world) if world.directory else None)
            if world.directory is not None:
                bring_in.remove_directory(world.directory)
            return world
        finally:
            store.lock.release()


def is_full(error: SubstrateError | OSError) -> bool:
    """Whether the disk is full, or the user's quota is used up."""
    if isinstance(error, DiskFullError):
        return True
    reason = error if isinstance(error, OSError) else error.__cause__
    return isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT)


def _discard(place: Place, text: str) -> Held:
    with place.existing_history() as store, store.writing("discard a world"):
        world = held_world_rows.find(store, text)
        _refuse_running(world, layer_of(world) if world.directory else None)
        if world.state != held_world_rows.DISCARDED and discarded_worlds.may_stay(world):
            discarded_worlds.put_aside(store, world)
            return world
        held_world_rows.let_go(store, world)
    directory = world.directory
    if directory is not None:
        bring_in.remove_directory(directory)
    return world


def layer_of(world: Held) -> Layer:
    """The layer of a held world; raises an error if its directory is gone."""
    for place in world.places:
        for layer in layer_dirs.find(place.parent):
            if layer.world_id == world.world_id:
                return layer
    raise WorkspaceError(
        f"the directory of {world.world_id} is gone",
        hint=f"`substrate world discard {world.world_id}` forgets it",
    )


def _refuse_running(world: Held, layer: Layer | None) -> None:
    if world.state == "running" or (layer is not None and layer_dirs.is_running(layer)):
        raise RefusedError(
            f"{world.world_id} is still at work: {world.command}",
            hint="wait for the command, or end it",
        )
