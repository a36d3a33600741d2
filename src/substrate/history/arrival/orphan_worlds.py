"""Worlds that hold something and that no command in the ledger speaks for.

A prompt, a completion or a job in the background may write in a shell's world between two of its
lines. The next line would have taken it along; if there is none any more, because the shell was
killed, the world waits for a decision like any other. So does one whose history was put aside, by
a reset or a repair, while it waited or its command ran; and one whose command was announced so
shortly before a power cut that the announcement is gone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from substrate.history import held, sessions
from substrate.history.record import Result, Running
from substrate.history.store import HistoryStore
from substrate.system import files, ids, platform

_ORIGIN, _META = "origin.json", "meta.json"
COMMAND = "(between two lines of a shell)"
_FORGOTTEN = "(a command whose history was put aside)"
_CUT_OFF = "(a command that the machine's end cut off)"


class Origin(NamedTuple):
    """What a world was made from, and for whom."""

    base: str
    since_ns: int
    session: str | None
    agent_id: str | None


def note(world: Path, origin: Origin) -> None:
    files.write_atomic(world / _ORIGIN, json.dumps(origin).encode("ascii"), durable=False)


def are_there(store: HistoryStore) -> bool:
    """Whether there may be something to look after; it may be that of somebody at work."""
    try:
        names = {n for n in os.listdir(store.dir / "worlds") if not n.startswith("ahead-")}
    except OSError:
        return False
    return not names <= {str(one.payload.get("world_id", "")) for one in store.ledger.intents()}


def bases(store: HistoryStore) -> set[bytes]:
    """What the worlds of shells at work were made from."""
    found = (_origin(path.parent) for path in (store.dir / "worlds").glob(f"*/{_ORIGIN}"))
    return {bytes.fromhex(origin.base) for origin in found if origin is not None}


def keep(store: HistoryStore, world: Path) -> str:
    """Make a world that holds something a waiting one. Inside the lock.

    What became of it, for people; empty if it can wait no better than it does. Against the
    present state: what a world was made from is gone with the history that knew it.
    """
    origin = _origin(world)
    command, reason = COMMAND, "the shell was ended"
    if origin is None:
        command, reason = _FORGOTTEN, "the history was put aside before it was recorded"
        origin, is_of_this_boot = _of_forgotten(world)
        if not is_of_this_boot:
            command, reason = _CUT_OFF, "the machine stopped while its command ran"
    if origin is None or store.tip_commit is None:
        return ""
    base = bytes.fromhex(origin.base)
    if not base or not store.objects.has(base):
        base = store.tip_commit
    session = sessions.for_recording(store, origin.session, origin.agent_id)
    running = Running(
        ids.new_id("c"), ids.new_id("spn"), session, origin.agent_id, command, base, "",
        world_id=world.name, places=(world,), started_ns=origin.since_ns,
    )  # fmt: skip
    result = Result(None, None, {"outcome": "interrupted", "exact": command})
    held.hold(store, running, result, "crashed", reason)
    return f"{world.name} waits: {reason}"


def _origin(world: Path) -> Origin | None:
    try:
        origin = Origin(*json.loads((world / _ORIGIN).read_bytes()))
        bytes.fromhex(origin.base)
    except (OSError, ValueError, TypeError):
        return None
    return origin


def _of_forgotten(world: Path) -> tuple[Origin | None, bool]:
    """None: it is not whole, somebody was removing it. And whether the machine is still up."""
    try:
        meta = json.loads((world / _META).read_bytes())
        origin = Origin("", int(meta["made_ns"]), None, None)
    except (OSError, ValueError, KeyError, TypeError):
        return None, True
    return origin, meta.get("boot_id") == platform.boot_id()
