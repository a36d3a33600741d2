"""Finishing what a kill or a power cut left half done. Idempotent, and safe to kill again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from substrate.errors import DamagedStoreError, NotFoundError
from substrate.history.arrival import arrival_journal, held_world_rows, orphan_worlds
from substrate.history.maintenance import compact, lost_disk, set_aside_intent
from substrate.history.record import record_entry
from substrate.history.reversal import restore, restore_excluded
from substrate.history.store import BRANCH, UNREADABLE, HistoryStore, Intent
from substrate.model import Change
from substrate.objects.index import ARRIVAL, IndexLock
from substrate.objects.store import loose, refs
from substrate.system.files import files
from substrate.system.process import process_identity
from substrate.system.sync import liveness_locks


def settle(store: HistoryStore, *, mends: bool = True) -> list[str]:
    """Finish interrupted work, inside the lock, before anything else. Returns messages.

    Without `mends`, raise `NotFoundError` if a part of the store is missing, or may be: a removal
    of the project that is under way looks the same as a lost disk.
    """
    if mends:
        after_boot(store)
    elif not _is_whole(store):
        raise NotFoundError("a part of the history is missing", hint=loose.HINT)
    lost_disk.record(store)
    store.publish_refs()
    intents = store.ledger.intents()
    # Arrivals first: completing an arrival also drops the intent of its command.
    arrived = [
        _attempt(store, intent, arrival_journal.finish)
        for intent in intents
        if intent.kind == arrival_journal.ARRIVE
    ]
    left = store.ledger.intents() if arrived else intents
    done = [_attempt(store, intent, _settle_one) for intent in left]
    return [said for said in arrived + done if said] + _sweep_worlds(store)


def _attempt(
    store: HistoryStore, intent: Intent, work: Callable[[HistoryStore, Intent], str]
) -> str:
    """Do the work, or set the intent aside: it must not stop every later command."""
    try:
        return work(store, intent)
    except Exception as error:
        if set_aside_intent.is_passing(error) or not store.anchor.is_there:
            raise
        return set_aside_intent.put(store, intent, error)


def _settle_one(store: HistoryStore, intent: Intent) -> str:
    if intent.kind == UNREADABLE:
        raise DamagedStoreError("its record cannot be read")
    if intent.kind in (record_entry.RUNNING, held_world_rows.HELD, held_world_rows.DISCARDED):
        running = record_entry.Running.from_payload(intent)
        if intent.kind == record_entry.RUNNING and not store.is_alive(intent):
            return (held_world_rows.crashed if running.world_id else _interrupted)(store, intent)
    elif intent.kind == restore.APPLY:
        return _finish_apply(store, intent)
    elif intent.kind == compact.PRUNE:
        compact.finish_prune(store, intent)
        return "finished an interrupted compact"
    return ""


def sweep(store: HistoryStore) -> None:
    """Remove the temporary files of a killed writer. Inside the lock, after `settle`.

    Called only when the last holder of the lock died holding it: the search costs a few hundred
    directory reads.
    """
    store.objects.remove_leftovers()
    open_intents = {intent.intent_id for intent in store.ledger.intents()}
    for path in (store.dir / "journal").iterdir():
        if path.name not in open_intents:
            files.remove_tree(path)
    _sweep_trash(store.trash_dir)
    IndexLock(store.root / ".git", ARRIVAL).clear_left()
    for place in (store.dir, store.dir / "index", store.git_dir, store.trash_dir):
        for path in place.iterdir():
            if path.name.startswith(".tmp-") or path.name.endswith(".tmp"):
                files.remove_tree(path)


def _sweep_trash(trash: Path) -> None:
    """Remove records whose write was interrupted; the items themselves were not yet moved."""
    for group in trash.iterdir():
        for place in group.iterdir() if group.is_dir() else ():
            for path in place.glob(".tmp-*") if place.is_dir() else ():
                files.remove_tree(path)


def sweep_elsewhere(store: HistoryStore, worlds: Path) -> list[str]:
    """The same for a directory that other workspaces use, too. Inside the lock."""
    own = str(store.root)
    return _sweep(
        store,
        [path for path in _listed(worlds) if held_world_rows.meta_of(path).get("root") == own],
    )


def _sweep_worlds(store: HistoryStore) -> list[str]:
    """Remove worlds that no intent names: the kill came after their change had arrived."""
    return _sweep(store, _listed(store.dir / "worlds"))


def _listed(worlds: Path) -> list[Path]:
    try:
        return [worlds / name for name in os.listdir(worlds)]
    except FileNotFoundError:
        return []


def _sweep(store: HistoryStore, found: list[Path]) -> list[str]:
    if not found:
        return []
    done = []
    awaited = {str(intent.payload.get("world_id", "")) for intent in store.ledger.intents()}
    for path in found:
        if path.name in awaited or _has_maker(path):
            continue
        # A world with undecided content stays, even if no intent names it.
        if (path / arrival_journal.DECIDED).exists() or held_world_rows.is_empty(path, store.root):
            with suppress(OSError):  # its own process may be removing it; retry next time
                held_world_rows.remove_directory(path)
        elif said := orphan_worlds.keep(store, path):
            done.append(said)
    return done


def unclaimed_worlds(store: HistoryStore) -> list[Path]:
    """Worlds that the next sweep would keep for a decision; nothing is changed."""
    awaited = {str(intent.payload.get("world_id", "")) for intent in store.ledger.intents()}
    return [
        path
        for path in _listed(store.dir / "worlds")
        if path.name not in awaited
        and not _has_maker(path)
        and not (path / arrival_journal.DECIDED).exists()
        and not held_world_rows.is_empty(path, store.root)
    ]


def _has_maker(world: Path) -> bool:
    """Whether the process that made a world is alive: it may be prepared for a later command."""
    meta = held_world_rows.meta_of(world)
    place = world.parent.parent
    # The name identifies the maker before any file is written, and during a takeover.
    made_by = world.name.removeprefix("ahead-")
    if made_by != world.name and liveness_locks.is_marked_alive(place, made_by):
        return True
    if token := str(meta.get("alive", "")):
        return liveness_locks.is_held(place, token)
    try:
        pid = int(str(meta["pid"]))
    except (ValueError, KeyError):
        return False
    if meta.get("boot_id") != process_identity.boot_id() or not process_identity.pid_alive(pid):
        return False
    return bool(process_identity.process_start_token(pid) == meta.get("pid_start"))


def after_boot(store: HistoryStore) -> None:
    """What was written without a sync may be gone or empty: write it again from the ledger.

    Inside the lock. A no-op unless the machine has booted since the last time, or the newest
    objects show that the disk was lost without a reboot: then `lost_disk.record` follows.
    A read-only copy, such as a backup, is left as it is.
    """
    if not os.access(store.git_dir, os.W_OK):
        return
    is_torn = lost_disk.is_torn(store)
    if not is_torn and not _has_booted(store):
        return
    store.objects.init()
    lost = _write_objects_again(store)
    if is_torn and lost_disk.is_torn(store):
        raise DamagedStoreError("the newest objects of the history are missing", hint=loose.HINT)
    for name, wanted in store.ledger.refs().items():
        if wanted is None:
            refs.delete_ref(store.git_dir, name)
        else:
            refs.write_ref(store.git_dir, name, wanted)
    with store.ledger.transaction():
        store.ledger.set_meta("boot_id", process_identity.boot_id())
        if is_torn:
            lost_disk.note_mended(store.ledger, lost)


def _is_whole(store: HistoryStore) -> bool:
    """Whether every part that each store has is there, as far as a few names show."""
    parts = [store.dir / "worlds", store.git_dir / "HEAD"]
    if store.tip_commit is not None:
        parts.append(store.git_dir / BRANCH)
    return (
        all(map(os.path.lexists, parts)) and not _has_booted(store) and not lost_disk.is_torn(store)
    )


def _has_booted(store: HistoryStore) -> bool:
    return bool(store.ledger.meta("boot_id") != process_identity.boot_id())


def _write_objects_again(store: HistoryStore) -> int:
    """Write missing or unreadable objects again from the ledger. Returns how many."""
    objects = store.objects
    objects.reload()
    broken = set()
    for oid in list(objects.loose_oids()):
        path = loose.loose_path(objects.objects_dir, oid)
        try:
            if os.stat(path).st_size == 0:
                os.unlink(path)
                broken.add(oid)
            else:
                objects.read(oid)
        except DamagedStoreError:
            broken.add(oid)
    lost = 0
    for oid, kind, data in store.ledger.pending_objects():
        if oid in broken or not objects.has(oid):
            objects.write_loose(oid, kind, data, durable=False)
            lost += 1
    return lost


def _interrupted(store: HistoryStore, intent: Intent) -> str:
    """Record a command whose recorder died: what changed since its start is attributed to it."""
    running = record_entry.Running.from_payload(intent)._replace(
        base_commit=store.tip_commit or b""
    )
    detail: dict[str, object] = {"outcome": "interrupted", "exact": intent.payload["exact"]}
    record_entry.finish(store, running, record_entry.Result(None, None, detail))
    return f"{running.command_id} was interrupted; what it changed is recorded"


def _finish_apply(store: HistoryStore, intent: Intent) -> str:
    """Finish an undo or rollback that was announced."""
    applier = restore.applier_for(store, intent)
    plan = restore.plan_of(intent)
    report = applier.resume(plan)
    how = restore_excluded.Later(intent.payload.get(restore.LATER, ""))
    changes = [Change(op.path, op.expect, op.become) for op in plan.ops]
    turns = restore.excluded_turns(store, restore.undoing_of(intent), how, changes)
    back = restore_excluded.carry_out(store, turns, restore.entry_of(intent).command_id)
    entry, _ = restore.complete(store, intent, back.detail())
    files.remove_tree(store.scratch(intent.intent_id))
    left = f", {len(report.conflicts)} path(s) left as they are" if report.conflicts else ""
    return f"finished an interrupted {entry.kind} ({entry.command_id}){left}"
