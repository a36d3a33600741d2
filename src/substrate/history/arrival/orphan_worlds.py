"""Worlds with content that no command in the ledger accounts for.

A prompt, a completion or a background job may write in a shell's world between two of its lines.
The next line would record that; if the shell was killed and there is no next line, the world is
held for a decision like any other. The same holds for a world whose history was put aside, by a
reset or a repair, while it was held or its command ran; and for a world whose command was
announced so shortly before a power cut that the announcement is lost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from substrate.history.arrival import held_world_rows
from substrate.history.record import Result, Running, sessions
from substrate.history.store import HistoryStore
from substrate.model import Hold, HoldCause, cause_words
from substrate.system import ids
from substrate.system.files import files
from substrate.system.process import process_identity

_ORIGIN, _META = "origin.json", "meta.json"
COMMAND = "(between two lines of a shell)"
_FORGOTTEN = "(a command whose history was put aside)"
_CUT_OFF = "(a command that the machine's end cut off)"


class Origin(NamedTuple):
    """The base, start, session and agent of a shell's world."""

    base: str
    since_ns: int
    session: str | None
    agent_id: str | None


def note(world: Path, origin: Origin) -> None:
    files.write_atomic(world / _ORIGIN, json.dumps(origin).encode("ascii"), durable=False)


def are_there(store: HistoryStore) -> bool:
    """Whether there may be an orphan world; it may also belong to a shell that still runs."""
    try:
        names = {n for n in os.listdir(store.dir / "worlds") if not n.startswith("ahead-")}
    except OSError:
        return False
    return not names <= {str(one.payload.get("world_id", "")) for one in store.ledger.intents()}


def bases(store: HistoryStore) -> set[bytes]:
    """The base commits of the worlds of running shells."""
    found = (_origin(path.parent) for path in (store.dir / "worlds").glob(f"*/{_ORIGIN}"))
    return {bytes.fromhex(origin.base) for origin in found if origin is not None}


def keep(store: HistoryStore, world: Path) -> str:
    """Hold a world that has content. Inside the lock.

    Returns a message for the user; empty if the world cannot be held. If the world's base is gone
    with the history that knew it, the present tip becomes its base.
    """
    origin, command, cause = _described(world)
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
    held_world_rows.hold(store, running, result, "crashed", (cause,))
    return f"{world.name} is held: {cause_words(cause)}"


def as_waiting(world: Path) -> held_world_rows.Held | None:
    """How such a world is listed until the next call that writes holds it."""
    origin, command, cause = _described(world)
    if origin is None:
        return None
    return held_world_rows.Held(
        world.name, "crashed", (cause,), "", origin.session or "", origin.agent_id, command,
        bytes.fromhex(origin.base), origin.since_ns, (world,), "", "assumed",
    )  # fmt: skip


def _described(world: Path) -> tuple[Origin | None, str, HoldCause]:
    """Its origin, the text shown as its command, and why it is held."""
    origin = _origin(world)
    if origin is not None:
        return origin, COMMAND, HoldCause(Hold.SHELL_ENDED)
    origin, is_of_this_boot = _of_forgotten(world)
    if is_of_this_boot:
        return origin, _FORGOTTEN, HoldCause(Hold.HISTORY_LOST)
    return origin, _CUT_OFF, HoldCause(Hold.MACHINE_STOPPED)


def _origin(world: Path) -> Origin | None:
    try:
        origin = Origin(*json.loads((world / _ORIGIN).read_bytes()))
        bytes.fromhex(origin.base)
    except (OSError, ValueError, TypeError):
        return None
    return origin


def _of_forgotten(world: Path) -> tuple[Origin | None, bool]:
    """The origin (None: incomplete, a removal was interrupted), and whether it is of this boot."""
    try:
        meta = json.loads((world / _META).read_bytes())
        origin = Origin("", int(meta["made_ns"]), None, None)
    except (OSError, ValueError, KeyError, TypeError):
        return None, True
    return origin, meta.get("boot_id") == process_identity.boot_id()
