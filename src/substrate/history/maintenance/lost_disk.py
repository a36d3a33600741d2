"""What is lost when a disk goes away without a reboot (USB, iSCSI, a loop device).

Objects are written without a sync, because the ledger has their bytes. After such a loss the newest
objects are empty files. The same is true for workspace files that a command wrote last and that had
not reached the disk yet: they exist, and are empty.
"""

from __future__ import annotations

import os
from contextlib import suppress

from substrate.errors import DamagedStoreError
from substrate.history.arrival import record_met
from substrate.history.record import observe
from substrate.history.store import ATTRS_REF, TO_TELL, HistoryStore, Ledger
from substrate.model import Change, Kind, display
from substrate.objects.store import loose
from substrate.workspace.paths import blob_id

#: In the ledger, from when the objects are written again until `record`: their number.
_MENDED = "disk_lost"
#: In the detail of an external entry: what caused the change, if that is known.
CAUSE = "cause"
_EMPTIED = "emptied when the disk was lost"
_EMPTY = blob_id(b"")
_SHOWN = 20


def is_torn(store: HistoryStore) -> bool:
    """Whether one of the objects that were written last is empty or missing."""
    tip = store.tip_commit
    if tip is None:
        return False
    if _is_lost(store, tip):
        return True
    with suppress(DamagedStoreError):  # other damage: the call that reads the object reports it
        state = store.snapshot_of(tip)
        of_attrs = store.ledger.ref(ATTRS_REF)
        return any(oid and _is_lost(store, oid) for oid in (state.tree, state.attrs, of_attrs))
    return False


def _is_lost(store: HistoryStore, oid: bytes) -> bool:
    try:
        return os.stat(loose.loose_path(store.objects.objects_dir, oid)).st_size == 0
    except OSError:
        return not store.objects.has(oid)


def note_mended(ledger: Ledger, lost: int) -> None:
    """Count the rewritten objects, inside a transaction. Only `record` reports them.

    A read-only command also writes the objects again, but reports nothing.
    """
    earlier = ledger.meta(_MENDED)
    ledger.set_meta(_MENDED, lost + (earlier if isinstance(earlier, int) else 0))


def is_mended(store: HistoryStore) -> bool:
    """Whether objects were written again, and no call that writes has reported it yet."""
    return store.ledger.meta(_MENDED) is not None


def record(store: HistoryStore) -> None:
    """Record what a lost disk took, for `HistoryStore.take_said`. Inside the lock.

    The text goes to the ledger, because the first process here may have no user: the daemon.
    """
    lost = store.ledger.meta(_MENDED)
    if lost is None:
        return
    mended = f"{lost} object(s) of the history were lost with the disk, and are written again"
    said = [mended, *_record_emptied(store)]
    with store.ledger.transaction():
        store.ledger.set_meta(TO_TELL, "\n".join(said))
        store.ledger.db.execute("DELETE FROM meta WHERE key = ?", (_MENDED,))


def _record_emptied(store: HistoryStore) -> list[str]:
    """Record the files that the loss emptied as an entry; history still has their content."""
    with store.new_batch() as batch:
        changes = [change for change in observe(store, batch).changes if _is_emptied(change)]
        if not changes:
            return []
        entry = record_met(store, batch, changes, {CAUSE: _EMPTIED})
    names = ", ".join(display(change.path) for change in changes[:_SHOWN])
    how = f"`substrate undo {entry.command_id}` brings back what they held"
    return [f"{_EMPTIED}: {names} ({how})"]


def _is_emptied(change: Change) -> bool:
    if change.old.kind is not Kind.FILE or change.new.kind is not Kind.FILE:
        return False
    return change.old.oid != _EMPTY and change.new.oid == _EMPTY
