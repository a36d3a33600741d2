"""The entry of a command that another process has already recorded as interrupted.

That happens where locks do not show that its recorder is alive (`system/sync/liveness_locks.py`: a
VM's share), and with versions that relied on the pid. The command's own record wins: its entry
replaces the other one, and nothing that was recorded is lost.
"""

from __future__ import annotations

import sqlite3

from substrate.errors import SubstrateError
from substrate.history.store import Entry, Ledger, NewEntry
from substrate.system import ids

HELD = "held"


def named(ledger: Ledger, new: NewEntry) -> NewEntry:
    """`new` under a free id, if the line already has a commit of that command.

    That commit has the changes up to then, and `new` has the rest. A commit names its entry, so
    call this before the commit is written.
    """
    found = ledger.by_command_id(new.command_id)
    if found is None or found.commit is None:
        return new
    return new._replace(command_id=ids.new_id("c"), detail={**new.detail, "of": new.command_id})


def add(ledger: Ledger, new: NewEntry, commit: bytes | None) -> Entry:
    """`Ledger.add`, also when the ledger has an entry of that command. Inside a transaction."""
    try:
        return ledger.add(new, commit)
    except SubstrateError as error:
        if not isinstance(error.__cause__, sqlite3.IntegrityError):
            raise
        found = ledger.by_command_id(new.command_id)
        if found is None:
            raise
    if found.commit is not None:
        return ledger.add(named(ledger, new), commit)
    ledger.db.execute("DELETE FROM entries WHERE seq = ?", (found.seq,))
    entry = ledger.add(new, commit)
    for column in ("target_seq", "by_seq"):
        ledger.db.execute(
            f"UPDATE reversals SET {column} = ? WHERE {column} = ?", (entry.seq, found.seq)
        )
    drop_holds(ledger, found.detail.get("world"))
    return entry


def drop_holds(ledger: Ledger, world_id: object) -> None:
    """Inside a transaction: the world is no longer held for a decision."""
    for intent in ledger.intents():
        if world_id and intent.kind == HELD and intent.payload.get("world_id") == world_id:
            ledger.drop_intent(intent.intent_id)
