"""A history that is opened before its command is known.

What every command does is done once and rolled back: then SQLite has the statements prepared and
the pages in memory. Nothing is written, and other processes are not blocked for long.
"""

from __future__ import annotations

from contextlib import suppress

from substrate.errors import LockedError, SubstrateError
from substrate.history.record import record_entry, sessions
from substrate.history.store.config import Config
from substrate.history.store.history_store import (
    HistoryStore,
    check_repaired,
    check_trusted,
    is_index_lost,
)
from substrate.history.store.ledger import NewEntry
from substrate.history.store.messages import BRANCH
from substrate.system import clock, ids
from substrate.workspace import Workspace


def open_ahead(workspace: Workspace) -> HistoryStore | None:
    """Open an existing, sound history for a later command; with default settings only.

    The caller must check `still_good` and set `config` before it uses the store.
    """
    if workspace.history_refused or not (workspace.store / "index" / "history.db").exists():
        return None
    check_trusted(workspace)
    check_repaired(workspace)
    store = HistoryStore(workspace, Config(), only_there=True)
    try:
        if not is_index_lost(store) and not store.ledger.is_ours_alone:
            store.objects.reload()
            with suppress(LockedError):  # another process is writing: skip the rehearsal
                _rehearse(store)
            return store
    except (SubstrateError, OSError):
        pass  # the disk is full or read-only: the command will report it
    store.close()
    return None


def _rehearse(store: HistoryStore) -> None:
    ledger = store.ledger
    latest = sessions.latest(ledger)
    if latest is None:
        return
    sessions.automatic_one(ledger, latest.agent_id)
    ledger.has_intent("")
    ledger.intents()
    ledger.refs(unpublished_only=True)
    ledger.meta("boot_id")
    with ledger.rehearsal():
        intent = store.new_intent(record_entry.RUNNING, {})
        new = NewEntry(
            ids.new_id("c"), "command", clock.now_ns(), "", latest.session_id, latest.agent_id,
            ids.new_id("spn"),
        )  # fmt: skip
        ledger.refs_were_published()
        ledger.add_intent(intent)
        ledger.add(new, None)
        ledger.keep_objects([(b"", "blob", b"")])
        ledger.set_ref(BRANCH, None)
        ledger.drop_intent(intent.intent_id)
        sessions.touch(ledger, latest.session_id)
