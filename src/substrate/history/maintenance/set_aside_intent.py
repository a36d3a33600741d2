"""Set aside an intent that cannot be settled, so that it does not stop every later command.

The intent stays in the ledger under another kind, with its payload, and `fsck` reports it.
`fsck --repair` moves it to a file in the quarantine. Nothing is lost by that: what a command
changed is in its world, which is held for a decision, or already in the tree; what an undo was
about to replace is behind its recovery ref.
"""

from __future__ import annotations

import errno
import json
from typing import NamedTuple

from substrate.errors import (
    DiskFullError,
    LockedError,
    MissingDependencyError,
    SubstrateError,
    WorkspaceMovedError,
)
from substrate.history.store import HistoryStore, Intent
from substrate.system.files import files

PREFIX = "aside:"
_REASON = "aside-reason:"
#: Problems of the machine, not of the intent: the same call may work a moment later.
_PASSING = (DiskFullError, LockedError, MissingDependencyError, WorkspaceMovedError)
_PASSING_ERRNOS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE),
        *(errno.ENOMEM, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.EINTR, errno.EAGAIN),
    }
)
_WORDS = {
    "running": "a command that was interrupted",
    "held": "a world that waits for a decision",
    "arrive": "bringing in what a command changed",
    "apply": "an interrupted undo, rollback or restore",
    "prune": "clearing away objects after a compaction",
}


class Aside(NamedTuple):
    intent_id: str
    #: A description for the user.
    what: str
    reason: str


def is_passing(error: BaseException) -> bool:
    """Whether trying again later may help: a full disk, a lock that another process holds."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _PASSING):
            return True
        if isinstance(seen, OSError) and seen.errno in _PASSING_ERRNOS:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def put(store: HistoryStore, intent: Intent, error: BaseException) -> str:
    """Set the intent aside. Inside the lock. Returns a message, also kept in `store.said`."""
    reason = error.message if isinstance(error, SubstrateError) else f"{error!r}"
    with store.commit_point() as ledger:
        ledger.db.execute(
            "UPDATE intents SET kind = ? || kind WHERE intent_id = ?", (PREFIX, intent.intent_id)
        )
        ledger.set_meta(_REASON + intent.intent_id, reason)
    said = (
        f"set aside: {_what(intent)} ({intent.intent_id}): {reason};"
        " `substrate fsck` shows it, `substrate world list` the worlds that wait"
    )
    store.said.append(said)
    return said


def all_aside(store: HistoryStore) -> list[Aside]:
    return [
        Aside(one.intent_id, _what(one), str(store.ledger.meta(_REASON + one.intent_id) or ""))
        for one in store.ledger.intents()
        if one.kind.startswith(PREFIX)
    ]


def move_to_quarantine(store: HistoryStore) -> None:
    """Write each to a file of its own, with its staged content, and drop it. Inside the lock."""
    rows = store.ledger.db.execute(
        "SELECT * FROM intents WHERE kind LIKE ?", (PREFIX + "%",)
    ).fetchall()
    for row in rows:
        intent_id = row["intent_id"]
        place = store.dir / "quarantine" / f"aside-{intent_id}"
        place.mkdir(parents=True, mode=0o700, exist_ok=True)
        told = {name: _text(row[name]) for name in row.keys()}  # noqa: SIM118  a sqlite3.Row
        told["reason"] = _text(store.ledger.meta(_REASON + intent_id))
        files.write_atomic(place / "intent.json", json.dumps(told, indent=1).encode())
        if store.scratch(intent_id).exists():
            store.scratch(intent_id).rename(place / "staged")
        with store.commit_point() as ledger:
            ledger.drop_intent(intent_id)
            ledger.db.execute("DELETE FROM meta WHERE key = ?", (_REASON + intent_id,))


def _what(intent: Intent) -> str:
    kind = intent.kind.removeprefix(PREFIX)
    what = _WORDS.get(kind, f"an operation of the kind {kind!r}")
    command_id = intent.payload.get("command_id")
    return f"{what}, {command_id}" if isinstance(command_id, str) else what


def _text(value: object) -> object:
    return value if isinstance(value, (str, int)) or value is None else repr(value)
