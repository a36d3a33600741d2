"""Worlds whose change has not arrived: held on purpose, by a collision, or left by a crash.

Each is an intent in the ledger, so that its base stays in the store until the user decides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError
from substrate.history.arrival.arrival_journal import ARRIVE, DECIDED, mark_decided
from substrate.history.record import (
    RUNNING,
    DecidedParts,
    Result,
    Running,
    ensure_baseline,
    late_entry,
    sessions,
)
from substrate.history.store import (
    Detail,
    Entry,
    HistoryStore,
    Intent,
    NewEntry,
    hold_causes_in,
    write_commit,
)
from substrate.model import Hold, HoldCause, RelPath, hold_causes_json
from substrate.objects.snapshots import Snapshot
from substrate.objects.store import Batch
from substrate.system import clock
from substrate.system.files import files
from substrate.workspace.apply import layer_is_noop
from substrate.workspace.paths import temporary_chmod

HELD = late_entry.HELD
#: A world that was discarded and can still be applied: see `discarded_worlds.py`.
DISCARDED = "discarded"
_STORE_NAME = b".substrate-git"
Causes = tuple[HoldCause, ...]


class Held(NamedTuple):
    """One held world, or (`state` is ``running``) one whose command still runs."""

    world_id: str
    #: ``held``, ``crashed``, ``detached``, ``running`` or ``discarded``.
    state: str
    #: Why it is held; empty while its command runs.
    causes: Causes
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
    parts: DecidedParts = DecidedParts()
    #: See `Running`.
    about: Detail = {}  # noqa: RUF012  a tuple: its default is replaced, never changed

    @property
    def group(self) -> str:
        """Of an attempt (`substrate try`): what it shares with the other attempts; else empty."""
        return str(self.about.get("group", ""))

    @property
    def directory(self) -> Path | None:
        return next((place for place in self.places if (place / "upper").is_dir()), None)

    @property
    def running(self) -> Running:
        """Its command, as it was announced."""
        return Running(
            self.command_id, "", self.session_id, self.agent_id, self.command, self.base_commit,
            self.intent_id, world_id=self.world_id, places=self.places,
            started_ns=self.started_ns, base_known=self.base_known, parts=self.parts,
            about=self.about,
        )  # fmt: skip


class Rest(NamedTuple):
    """What stays in a held world when a part of it arrives."""

    world: Held
    #: `HELD`, or `DISCARDED`: only discarded paths are left.
    kind: str


def rest_payload(rest: Rest, base_commit: bytes, applied: Iterable[RelPath]) -> Detail:
    """The intent of the rest; `applied`: the excluded paths that arrive."""
    world = rest.world
    running = world.running._replace(
        base_commit=base_commit, parts=world.parts.with_applied(applied)
    )
    state = DISCARDED if rest.kind == DISCARDED else world.state
    return payload_of(running, state, world.causes)


def discard_part(store: HistoryStore, world: Held, paths: Iterable[RelPath]) -> None:
    """Note that the user has discarded these paths of a held world. Inside the lock."""
    running = world.running._replace(parts=world.parts.with_discarded(paths))
    with store.commit_point() as ledger:
        ledger.drop_intent(world.intent_id)
        ledger.add_intent(store.new_intent(HELD, payload_of(running, world.state, world.causes)))


def payload_of(running: Running, state: str, causes: Causes) -> Detail:
    return {**running.to_payload(), "state": state, "reason": hold_causes_json(causes)}


def hold(
    store: HistoryStore, running: Running, result: Result, state: str, causes: Causes
) -> Entry:
    """Hold the change of a finished command and drop its running intent. Inside the lock."""
    kept = store.kept_detail({**running.about, **result.detail}, running.command)
    held = hold_causes_json(causes)
    detail = {**kept, "world": running.world_id, "world_state": state, "held": held}
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
    )  # fmt: skip
    with store.commit_point() as ledger:
        # A part of the change may have arrived already: then the entry exists.
        entry = ledger.by_command_id(new.command_id) or ledger.add(new, None)
        ledger.drop_intent(running.intent_id)
        late_entry.drop_holds(ledger, running.world_id)
        ledger.add_intent(store.new_intent(HELD, payload_of(running, state, causes)))
        if store.tip_commit is not None:
            sessions.touch(ledger, running.session_id)
    return entry


def keep(store: HistoryStore, running: Running, causes: Causes) -> None:
    """Most of the change has arrived; keep the world for the rest."""
    with store.commit_point() as ledger:
        ledger.drop_intent(running.intent_id)
        ledger.add_intent(store.new_intent(HELD, payload_of(running, "held", causes)))


def keep_detached(
    store: HistoryStore, batch: Batch, running: Running, seen: Snapshot | None
) -> None:
    """Processes of the command are still running: their further changes arrive when they end.

    Inside the lock, after the changes so far have arrived. `seen` is the state that the command
    made, None if it had changed nothing yet.
    """
    now_ns = clock.now_ns()
    base = running.base_commit
    if seen is not None:
        new = NewEntry(running.command_id, "command", now_ns, running.command)
        base = write_commit(batch, seen, None, new, f"detached: {running.command_id}")
    payload = payload_of(
        running._replace(base_commit=base, started_ns=now_ns, base_known="assumed"), "detached",
        (HoldCause(Hold.PROCESSES_RUNNING),),
    )  # fmt: skip
    for place in running.places:
        (place / DECIDED).unlink(missing_ok=True)  # more changes will follow
    with store.commit_point(batch) as ledger:
        ledger.add_intent(store.new_intent(HELD, payload))


def is_unsettled(store: HistoryStore) -> bool:
    """Whether a killed process left work that must be finished before worlds can be listed."""
    return any(
        intent.kind == ARRIVE or (intent.kind == RUNNING and not store.is_alive(intent))
        for intent in store.ledger.intents()
    )


def may_be_detached(store: HistoryStore) -> bool:
    """Whether any world is held at all. A single query, because every command asks it."""
    return store.ledger.has_intent(HELD)


def all_held(store: HistoryStore) -> list[Held]:
    """Oldest first; running ones too."""
    out = []
    for intent in store.ledger.intents():
        is_world = bool(intent.payload.get("world_id"))
        if intent.kind == HELD or (intent.kind == RUNNING and is_world):
            with suppress(KeyError, ValueError, TypeError):  # `settle` sets it aside
                out.append(_held(store, intent))
    return out


def discarded(store: HistoryStore) -> list[Held]:
    """Worlds that were discarded and are not gone yet, oldest first."""
    out = []
    for intent in store.ledger.intents():
        if intent.kind == DISCARDED:
            with suppress(KeyError, ValueError, TypeError):  # `settle` sets it aside
                out.append(_held(store, intent))
    return out


def find(store: HistoryStore, text: str) -> Held:
    """By the world's id or its command's, or a unique prefix of either; discarded ones too."""
    from substrate.history.query import one_of, resolve

    known = {one.world_id: one for one in [*discarded(store), *all_held(store)]}
    by_id = {**{one.command_id: one for one in known.values()}, **known}
    if text.startswith("@"):
        entry = resolve(store, text, None).entry
        text = entry.command_id if entry else text
    if text in by_id:
        return by_id[text]
    # `wld_` alone matches nothing, even if only one world is held: the command may be `discard`.
    matching = [name for name in by_id if len(text) > 4 and name.startswith(text)]
    if not matching:
        raise NotFoundError(
            f"no held world matches {text!r}", hint="`substrate world list` shows them"
        )
    return by_id[one_of("world", text, matching)]


def let_go(store: HistoryStore, held: Held) -> None:
    """Drop a world that the user has decided on. Inside the lock."""
    if held.directory is not None:
        mark_decided(held.directory)
    with store.commit_point() as ledger:
        ledger.drop_intent(held.intent_id)
        entry = ledger.by_command_id(held.command_id)
        if entry is not None:  # for `log`: its change never arrives
            ledger.add_detail(entry, discarded=True)


def remove_directory(world: Path) -> None:
    """Remove the content first: if the removal is interrupted, the mark that the world is not
    needed is still there."""
    files.remove_tree(world / "upper")
    files.remove_tree(world)


def crashed(store: HistoryStore, intent: Intent) -> str:
    """A recorder died while its command ran in a world: keep the world if it holds a change."""
    ensure_baseline(store)  # the child that would have taken it was killed, too
    if not intent.payload.get("base"):  # the baseline has set the base of this intent by now
        told = (one for one in store.ledger.intents() if one.intent_id == intent.intent_id)
        intent = next(told, intent)
    held = _held(store, intent)
    running = Running.from_payload(intent)._replace(places=held.places)
    directory = held.directory
    result = Result(None, None, {"outcome": "interrupted", "exact": intent.payload["exact"]})
    if directory is not None and not is_empty(directory, store.root):
        hold(store, running, result, "crashed", (HoldCause(Hold.RECORDER_ENDED),))
        temporary_chmod.open_up(directory, directory / "upper")
        return f"{running.command_id} was interrupted; its changes wait in {running.world_id}"
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        detail={**running.about, **result.detail},
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
        # In a copy of the tree a missing path means a removal; in an overlay's layer it does not.
        if temporary_chmod.has_notes(world):  # its modes are not those that the command set
            return False
        is_overlay = meta_of(world).get("kind") == "overlay"
        return is_overlay and layer_is_noop.copied_directories(upper, os.fsencode(root)) is not None
    except FileNotFoundError:
        return True
    except OSError:
        return False  # unreadable: let the user decide


def meta_of(world: Path) -> dict[str, object]:
    """The world's `meta.json`; empty if it cannot be read."""
    try:
        found = json.loads((world / "meta.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _held(store: HistoryStore, intent: Intent) -> Held:
    running = Running.from_payload(intent)
    state = str(intent.payload.get("state", "running"))
    if intent.kind == RUNNING and not store.is_alive(intent):
        state = "crashed"
    return Held(
        running.world_id, state, hold_causes_in(intent.payload.get("reason")), running.command_id,
        running.session_id, running.agent_id, running.command, running.base_commit,
        running.started_ns, tuple(map(store.world_place, running.places)), intent.intent_id,
        running.base_known, running.parts, running.about,
    )  # fmt: skip
