"""Worlds whose change has not arrived: held on purpose, by a collision, or left by a crash.

Each is an intent in the ledger, so that its base stays in the store until it is decided on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError
from substrate.history import sessions
from substrate.history.arrival_journal import ARRIVE, DECIDED, mark_decided
from substrate.history.ledger import Detail, Entry, Intent, NewEntry
from substrate.history.line import write_commit
from substrate.history.record import RUNNING, Result, Running, ensure_baseline
from substrate.history.store import HistoryStore, is_alive
from substrate.objects.batch import Batch
from substrate.objects.snapshot import Snapshot
from substrate.system import clock, files
from substrate.workspace import untouched

HELD = "held"
_STORE_NAME = b".substrate-git"


class Held(NamedTuple):
    """One world that waits, or (`state` is ``running``) is still at work."""

    world_id: str
    #: ``held``, ``crashed``, ``detached`` or ``running``.
    state: str
    #: Why it waits.
    reason: str
    #: The command it came from; its entry in the log.
    command_id: str
    session_id: str
    agent_id: str | None
    command: str
    base_commit: bytes
    started_ns: int
    #: Where its upper directory may be.
    places: tuple[Path, ...]
    intent_id: str
    #: See `Running`.
    base_known: str

    @property
    def directory(self) -> Path | None:
        return next((place for place in self.places if (place / "upper").is_dir()), None)


def payload_of(running: Running, state: str, reason: str) -> Detail:
    return {**running.to_payload(), "state": state, "reason": reason}


def hold(store: HistoryStore, running: Running, result: Result, state: str, reason: str) -> Entry:
    """The command is over, its change waits. Inside the lock; its running intent goes."""
    detail = {**result.detail, "world": running.world_id, "world_state": state, "held": reason}
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
    )  # fmt: skip
    with store.commit_point() as ledger:
        # Some of it may have arrived, and only the rest be left.
        entry = ledger.by_command_id(new.command_id) or ledger.add(new, None)
        ledger.drop_intent(running.intent_id)
        ledger.add_intent(store.new_intent(HELD, payload_of(running, state, reason)))
        if store.tip_commit is not None:
            sessions.touch(ledger, running.session_id)
    return entry


def keep(store: HistoryStore, running: Running, reason: str) -> None:
    """Most of it has arrived, and something of it lies in the world still."""
    with store.commit_point() as ledger:
        ledger.drop_intent(running.intent_id)
        ledger.add_intent(store.new_intent(HELD, payload_of(running, "held", reason)))


def keep_detached(
    store: HistoryStore, batch: Batch, running: Running, seen: Snapshot | None
) -> None:
    """Processes of the command go on: what they change from here on arrives when they end.

    Inside the lock, when what was there so far has arrived; `seen` is the state it made, None
    if it had changed nothing yet.
    """
    now_ns = clock.now_ns()
    base = running.base_commit
    if seen is not None:
        new = NewEntry(running.command_id, "command", now_ns, running.command)
        base = write_commit(batch, seen, None, new, f"detached: {running.command_id}")
    payload = payload_of(
        running._replace(base_commit=base, started_ns=now_ns, base_known="assumed"), "detached",
        "processes of the command are still running",
    )  # fmt: skip
    for place in running.places:
        (place / DECIDED).unlink(missing_ok=True)  # more is to come
    with store.commit_point(batch) as ledger:
        ledger.add_intent(store.new_intent(HELD, payload))


def is_unsettled(store: HistoryStore) -> bool:
    """Whether a kill left something that must be finished before the worlds can be told."""
    return any(
        intent.kind == ARRIVE or (intent.kind == RUNNING and not is_alive(intent))
        for intent in store.ledger.intents()
    )


def may_be_detached(store: HistoryStore) -> bool:
    """Whether any world waits at all: one question, for every command asks it."""
    return store.ledger.has_intent(HELD)


def all_held(store: HistoryStore) -> list[Held]:
    """Oldest first; running ones too."""
    out = []
    for intent in store.ledger.intents():
        is_world = bool(intent.payload.get("world_id"))
        if intent.kind == HELD or (intent.kind == RUNNING and is_world):
            out.append(_held(intent))
    return out


def find(store: HistoryStore, text: str) -> Held:
    """By the world's id or a unique prefix of it, or by its command's id."""
    from substrate.history.resolve import one_of

    known = {one.world_id: one for one in all_held(store)}
    by_command = {one.command_id: one for one in known.values()}
    if text in known or text in by_command:
        return known.get(text) or by_command[text]
    # `wld_` alone names none, not even where only one waits: the next word may be `discard`.
    matching = [name for name in known if len(text) > 4 and name.startswith(text)]
    if not matching:
        raise NotFoundError(
            f"no world {text} waits here", hint="`substrate world list` shows those that do"
        )
    return known[one_of("world", text, matching)]


def let_go(store: HistoryStore, held: Held) -> None:
    """It is decided on. Inside the lock."""
    if held.directory is not None:
        mark_decided(held.directory)
    with store.commit_point() as ledger:
        ledger.drop_intent(held.intent_id)


def remove_directory(world: Path) -> None:
    """What it holds goes first: of one that was cut off in the middle, all that says that it is
    not needed stands as long as anything else does."""
    files.remove_tree(world / "upper")
    files.remove_tree(world)


def crashed(store: HistoryStore, intent: Intent) -> str:
    """A recorder died while its command ran in a world: the world is kept if it holds anything."""
    ensure_baseline(store)  # who was to take it beside the command was killed, too
    if not intent.payload.get("base"):  # by now it is known what the world is a change of
        told = (one for one in store.ledger.intents() if one.intent_id == intent.intent_id)
        intent = next(told, intent)
    running = Running.from_payload(intent)
    held = _held(intent)
    directory = held.directory
    result = Result(None, None, {"outcome": "interrupted", "exact": intent.payload["exact"]})
    if directory is not None and not is_empty(directory, store.root):
        hold(store, running, result, "crashed", "the command's recorder was ended")
        return f"{running.command_id} was interrupted; its changes wait in {running.world_id}"
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        detail=result.detail,
    )  # fmt: skip
    with store.commit_point() as ledger:
        if ledger.by_command_id(new.command_id) is None:
            ledger.add(new, None)
        ledger.drop_intent(intent.intent_id)
    for place in running.places:
        files.remove_tree(place)
    return f"{running.command_id} was interrupted; it had changed nothing"


def is_empty(world: Path, root: Path) -> bool:
    """Whether a command has left nothing in its world over `root`."""
    upper = os.fsencode(world / "upper")
    try:
        if set(os.listdir(upper)) <= {_STORE_NAME}:
            return True
        # A copy of the tree says by what it lacks what was removed; an overlay's layer does not.
        is_overlay = meta_of(world).get("kind") == "overlay"
        return is_overlay and untouched.copied_directories(upper, os.fsencode(root)) is not None
    except FileNotFoundError:
        return True
    except OSError:
        return False  # shut to us: somebody should look


def meta_of(world: Path) -> dict[str, object]:
    """What its maker wrote down about it; empty if that is not to be had."""
    try:
        found = json.loads((world / "meta.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _held(intent: Intent) -> Held:
    running = Running.from_payload(intent)
    state = str(intent.payload.get("state", "running"))
    if intent.kind == RUNNING and not is_alive(intent):
        state = "crashed"
    return Held(
        running.world_id, state, str(intent.payload.get("reason", "")), running.command_id,
        running.session_id, running.agent_id, running.command, running.base_commit,
        running.started_ns, running.places, intent.intent_id, running.base_known,
    )  # fmt: skip
