"""What was written in a shell's world between two of its lines, when the shell was then killed.

A prompt, a completion or a job in the background may write there. The next line would have taken
it along; if there is none any more, the world waits for a decision like any other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from substrate.history import held, sessions
from substrate.history.record import Result, Running
from substrate.history.store import HistoryStore
from substrate.system import files, ids

_ORIGIN = "origin.json"
COMMAND = "(between two lines of a shell)"


class Origin(NamedTuple):
    """What a world was made from, and for whom."""

    base: str
    since_ns: int
    session: str | None
    agent_id: str | None


def note(world: Path, origin: Origin) -> None:
    files.write_atomic(world / _ORIGIN, json.dumps(origin).encode("ascii"), durable=False)


def are_there(store: HistoryStore) -> bool:
    """Whether there is something to look after; it may be that of a shell at work."""
    return any((store.dir / "worlds").glob(f"*/{_ORIGIN}"))


def keep(store: HistoryStore, world: Path) -> bool:
    """Make a world that holds something and has no line a waiting one. Inside the lock."""
    try:
        origin = Origin(*json.loads((world / _ORIGIN).read_bytes()))
        base = bytes.fromhex(origin.base)
    except (OSError, ValueError, TypeError):
        return False
    if not store.objects.has(base):
        base = store.tip_commit or b""
    session = sessions.for_recording(store, origin.session, origin.agent_id)
    running = Running(
        ids.new_id("c"), ids.new_id("spn"), session, origin.agent_id, COMMAND, base, "",
        world_id=world.name, places=(world,), started_ns=origin.since_ns,
    )  # fmt: skip
    result = Result(None, None, {"outcome": "interrupted", "exact": COMMAND})
    held.hold(store, running, result, "crashed", "the shell was ended")
    return True
