"""Intents: operations that the ledger lists as begun and not finished."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import NamedTuple

#: The kind of an intent whose record is damaged.
UNREADABLE = "unreadable"
#: In an undo's detail, from its announcement on: the refs to move back after the files. In the
#: ledger's metadata: the undo that has restored the files and not yet moved the refs.
TO_MOVE = "to_move"


class Intent(NamedTuple):
    intent_id: str
    kind: str
    payload: dict[str, object]
    pid: int
    process_token: str
    boot_id: str
    ts_ns: int


def read(row: sqlite3.Row) -> Intent:
    """Read an intent; if its payload is damaged, its kind is `UNREADABLE` until set aside."""
    kind, payload = row["kind"], None
    with suppress(ValueError, TypeError):
        payload = json.loads(row["payload"])
    if not isinstance(payload, dict):
        kind, payload = kind if ":" in kind else UNREADABLE, {}
    return Intent(row["intent_id"], kind, payload, row["pid"], row["process_token"],
                  row["boot_id"], row["ts_ns"])  # fmt: skip
