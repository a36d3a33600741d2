"""Finishing what a kill or a power cut left half done. Idempotent, and safe to kill again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from substrate.errors import DamagedStoreError
from substrate.history import arrival_journal, compact, held, record, restore, unclaimed
from substrate.history.ledger import Intent
from substrate.history.store import HistoryStore, is_alive
from substrate.objects import loose, refs
from substrate.system import files, platform
from substrate.workspace import index_lock


def settle(store: HistoryStore) -> list[str]:
    """Inside the lock, before anything else. Returns what was done, for people."""
    done: list[str] = []
    after_boot(store)
    store.publish_refs()
    intents = store.ledger.intents()
    # Arrivals first: the intent of the command goes with its arrival.
    arrived = [
        arrival_journal.finish(store, intent)
        for intent in intents
        if intent.kind == arrival_journal.ARRIVE
    ]
    for intent in store.ledger.intents() if arrived else intents:
        if intent.kind == record.RUNNING:
            if not is_alive(intent):
                in_world = bool(intent.payload.get("world_id"))
                done.append((held.crashed if in_world else _interrupted)(store, intent))
        elif intent.kind == restore.APPLY:
            done.append(_finish_apply(store, intent))
        elif intent.kind == compact.PRUNE:
            compact.finish_prune(store, intent)
    return arrived + done + _sweep_worlds(store)


def sweep(store: HistoryStore) -> None:
    """Clear away the temporaries of a writer that was killed. Inside the lock, after `settle`.

    Called only when the last holder of the lock died with it: looking costs a few hundred
    directory reads.
    """
    store.objects.remove_leftovers()
    open_intents = {intent.intent_id for intent in store.ledger.intents()}
    for path in (store.dir / "journal").iterdir():
        if path.name not in open_intents:
            files.remove_tree(path)
    _sweep_trash(store.trash_dir)
    index_lock.clear_left(store.root / ".git")
    for place in (store.dir, store.dir / "index", store.git_dir, store.trash_dir):
        for path in place.iterdir():
            if path.name.startswith(".tmp-") or path.name.endswith(".tmp"):
                files.remove_tree(path)


def _sweep_trash(trash: Path) -> None:
    """A record that was being written when the kill came; the thing itself was not yet moved."""
    for group in trash.iterdir():
        for place in group.iterdir() if group.is_dir() else ():
            for path in place.glob(".tmp-*") if place.is_dir() else ():
                files.remove_tree(path)


def sweep_elsewhere(store: HistoryStore, worlds: Path) -> list[str]:
    """The same for a directory that other workspaces use, too. Inside the lock."""
    own = str(store.root)
    return _sweep(
        store, [path for path in _listed(worlds) if held.meta_of(path).get("root") == own]
    )


def _sweep_worlds(store: HistoryStore) -> list[str]:
    """Worlds that nobody waits for: their change has arrived, and then came the kill."""
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
        # One that holds something nobody decided on stays, even if no intent names it.
        if (path / arrival_journal.DECIDED).exists() or held.is_empty(path, store.root):
            with suppress(OSError):  # its own process may be at it; what stays goes next time
                held.remove_directory(path)
        elif said := unclaimed.keep(store, path):
            done.append(said)
    return done


def _has_maker(world: Path) -> bool:
    """Whether the process that made a world is alive: it may be one made ahead of its command."""
    if world.name.startswith(f"ahead-{os.getpid()}-"):
        return True  # our own
    meta = held.meta_of(world)
    try:
        pid = int(str(meta["pid"]))
    except (ValueError, KeyError):
        return _is_being_made(world.name)
    if meta.get("boot_id") != platform.boot_id() or not platform.pid_alive(pid):
        return False
    return bool(platform.process_start_token(pid) == meta.get("pid_start"))


def _is_being_made(name: str) -> bool:
    """One made ahead has its maker's number in its name, before anything is written in it."""
    kind, _, rest = name.partition("-")
    pid = rest.partition("-")[0]
    return kind == "ahead" and pid.isdecimal() and platform.pid_alive(int(pid))


def after_boot(store: HistoryStore) -> None:
    """What was written without a sync may be gone or empty: write it again from the ledger.

    Inside the lock. Does nothing unless the machine was started since the last time.
    """
    if store.ledger.meta("boot_id") == platform.boot_id():
        return
    store.objects.init()
    for oid in list(store.objects.loose_oids()):
        try:
            store.objects.read(oid)
        except DamagedStoreError:
            os.unlink(loose.loose_path(store.objects.objects_dir, oid))
    for oid, kind, data in store.ledger.pending_objects():
        if not store.objects.has(oid):
            store.objects.write_loose(oid, kind, data, durable=False)
    for name, wanted in store.ledger.refs().items():
        if wanted is None:
            refs.delete_ref(store.git_dir, name)
        else:
            refs.write_ref(store.git_dir, name, wanted)
    with store.ledger.transaction():
        store.ledger.set_meta("boot_id", platform.boot_id())


def _interrupted(store: HistoryStore, intent: Intent) -> str:
    """A command whose recorder died: what changed since its start is still the command's."""
    running = record.Running.from_payload(intent)._replace(base_commit=store.tip_commit or b"")
    detail: dict[str, object] = {"outcome": "interrupted", "exact": intent.payload["exact"]}
    record.finish(store, running, record.Result(None, None, detail))
    return f"{running.command_id} was interrupted; what it changed is recorded"


def _finish_apply(store: HistoryStore, intent: Intent) -> str:
    """An undo or rollback that was announced: carry it to its end."""
    applier = restore.applier_for(store, intent)
    report = applier.resume(restore.plan_of(intent))
    entry = restore.complete(store, intent)
    restore.return_trash(store, restore.undoing_of(intent))
    files.remove_tree(store.scratch(intent.intent_id))
    left = f", {len(report.conflicts)} path(s) left as they are" if report.conflicts else ""
    return f"finished an interrupted {entry.kind} ({entry.command_id}){left}"
