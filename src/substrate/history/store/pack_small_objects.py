"""Moving small objects from the ledger into a synced pack, and removing what packs replace."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from substrate.history.store.history_store import HistoryStore
from substrate.objects.import_user import move_pack_in
from substrate.objects.store import PackWriter, loose

#: Above this size the ledger's copies are packed: keeps the ledger small and loose objects few.
FLUSH_BYTES = 4 << 20


def flush_if_due(store: HistoryStore) -> None:
    if store.ledger.pending_bytes() > FLUSH_BYTES and not store.ledger.is_rehearsing:
        flush_pending(store)


def flush_pending(store: HistoryStore) -> None:
    """Pack the ledger's objects. Inside the lock. A kill leaves duplicates, never a loss."""
    pack = PackWriter(store.objects.objects_dir)
    oids = []
    try:
        for oid, kind, data in store.ledger.pending_objects():
            pack.add(oid, kind, data)
            oids.append(oid)
        if not oids:
            pack.discard()
            return
        pack.finish(durable=True)
    except BaseException:
        pack.discard()
        raise
    store.objects.reload()
    with store.ledger.transaction():
        store.ledger.forget_pending_objects()
    _remove_loose(store, oids)


def adopt_pack(store: HistoryStore, pack: Path) -> str:
    """Sync a finished pack and move it into the store; returns its bare name."""
    move_pack_in(pack, store.objects)
    store.objects.reload()
    return pack.stem


def remove_objects_except(store: HistoryStore, kept_packs: set[str]) -> None:
    """Drop all loose objects, and every pack whose name is not among `kept_packs`."""
    pack_dir = os.path.join(store.objects.objects_dir, "pack")
    for name in sorted(os.listdir(pack_dir)):
        if name.rsplit(".", 1)[0] not in kept_packs:
            _unlink(os.path.join(pack_dir, name))
    _remove_loose(store, list(store.objects.loose_oids()))
    store.objects.reload()


def _remove_loose(store: HistoryStore, oids: list[bytes]) -> None:
    """Remove loose objects, and every directory of them that is empty then: each takes a block."""
    top = store.objects.objects_dir
    for oid in oids:
        _unlink(loose.loose_path(top, oid))
    for name in os.listdir(top):
        if loose.is_directory_name(name):
            with suppress(OSError):  # not empty: a process is about to write there, or has
                os.rmdir(os.path.join(top, name))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
