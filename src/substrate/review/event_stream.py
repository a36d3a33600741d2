"""Server-sent events: what was recorded, as it happens. They hold ids; clients ask for the rest.

id: the entry's number, so that `Last-Event-ID` resumes after it. An event without an id means
that something else changed: a command began or ended, a world is held or was decided on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.recorder import HistoryStore, Place

#: Five times a second at most.
_PAUSE_S = 0.2
#: A comment keeps the connection open, and tells the server that the client is gone.
_QUIET_S = 15.0
_MOST_AT_ONCE = 500


class _State(NamedTuple):
    last_seq: int
    #: Of what was begun and not finished: running commands, held worlds.
    begun: tuple[str, ...]
    prompts: int


class _Watch:
    """One thread with one open history: SQLite's connections stay in their thread."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def state(self) -> _State:
        try:
            with self._place.existing_history() as store:
                return _state(store)
        except SubstrateError:  # nothing is recorded yet, or it is being moved
            return _State(0, (), 0)

    def entries(self, after: int) -> list[tuple[int, str, str]]:
        with self._place.existing_history() as store:
            rows = store.ledger.db.execute(
                "SELECT seq, command_id, kind FROM entries WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, _MOST_AT_ONCE),
            )
            return [tuple(row) for row in rows]


def _state(store: HistoryStore) -> _State:
    db = store.ledger.db
    row = db.execute(
        "SELECT coalesce((SELECT max(seq) FROM entries), 0), (SELECT count(*) FROM prompt_entries)"
    ).fetchone()
    begun = tuple(one.intent_id for one in store.ledger.intents())
    return _State(row[0], begun, row[1])


async def events(
    place: Place, after: int | None, is_stopping: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """From now on, or after the entry with number `after`, until the server stops."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread, place.keeping() as kept:
        watch = _Watch(kept)
        try:
            known = await loop.run_in_executor(thread, watch.state)
            seq = known.last_seq if after is None else min(after, known.last_seq)
            yield _event("hello", {"last": known.last_seq}, None)
            quiet_s = 0.0
            while not is_stopping():
                state = await loop.run_in_executor(thread, watch.state)
                while seq < state.last_seq:
                    found = await loop.run_in_executor(thread, watch.entries, seq)
                    if not found:
                        seq = state.last_seq
                    for number, command_id, kind in found:
                        yield _event("entry", {"id": command_id, "kind": kind}, number)
                        seq = number
                if state[1:] != known[1:]:
                    yield _event("changed", {}, None)
                quiet_s = 0.0 if state != known else quiet_s + _PAUSE_S
                known = state
                if quiet_s >= _QUIET_S:
                    quiet_s = 0.0
                    yield b": still here\n\n"
                await asyncio.sleep(_PAUSE_S)
        finally:
            # The connection is closed in the thread that opened it.
            if kept.kept is not None:
                thread.submit(kept.kept.close).result()


def _event(name: str, data: dict[str, object], number: int | None) -> bytes:
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
