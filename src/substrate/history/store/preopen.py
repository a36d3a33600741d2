"""A history made ready before its command is known.

It is opened, and what every command does is done once and taken back: SQLite has the statements
prepared and the pages in memory then. Nothing is written, and nobody is kept waiting for long.
"""

from __future__ import annotations

from contextlib import suppress

from substrate.errors import LockedError, SubstrateError
from substrate.history import record, sessions
from substrate.history.config import Config
from substrate.history.ledger import NewEntry
from substrate.history.messages import BRANCH
from substrate.history.store import (
    HistoryStore,
    check_repaired,
    check_trusted,
    is_index_lost,
)
from substrate.system import clock, ids
from substrate.workspace.locate import Workspace


def open_ahead(workspace: Workspace) -> HistoryStore | None:
    """A history that is there and sound, for whoever may need it; with no settings but defaults.

    Ask `still_good` and give it its `config` before it is used.
    """
    if workspace.history_refused or not (workspace.store / "index" / "history.db").exists():
        return None
    check_trusted(workspace)
    check_repaired(workspace)
    store = HistoryStore(workspace, Config(), only_there=True)
    try:
        if not is_index_lost(store) and not store.ledger.is_ours_alone:
            store.objects.reload()
            with suppress(LockedError):  # somebody is writing: then it is not rehearsed
                _rehearse(store)
            return store
    except (SubstrateError, OSError):
        pass  # a disk that is full or cannot be written to: the command will say so
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
        intent = store.new_intent(record.RUNNING, {})
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
