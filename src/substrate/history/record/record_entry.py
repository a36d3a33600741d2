"""Writing down what a command, or somebody outside, changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history import baseline, flush, parts, sessions
from substrate.history.ledger import Detail, Entry, Intent, NewEntry
from substrate.history.line import Extension
from substrate.history.observe import Observation, count_files, edited, observe
from substrate.history.store import HistoryStore, is_alive
from substrate.model.nodes import ABSENT, Change
from substrate.model.paths import RelPath, ancestors, display
from substrate.objects import refs
from substrate.objects.batch import Batch
from substrate.system import clock, ids
from substrate.workspace.newer import new_moment

RUNNING = "running"
#: Of a base: taken while the command ran already. What somebody changed in that time may be in it
#: although the command did not see it, and `Running.started_ns` is by the clock of files.
BESIDE = "beside"


class Running(NamedTuple):
    """A command between its start and its record; the ledger holds it as an intent."""

    command_id: str
    span_id: str
    session_id: str
    agent_id: str | None
    command: str
    #: Empty: the baseline is still being taken, see `base_of`.
    base_commit: bytes
    intent_id: str
    #: Other commands that ran when this one started: their changes cannot be told apart.
    beside: tuple[str, ...] = ()
    #: The world it runs in; empty: on the real files.
    world_id: str = ""
    #: Where that world's directory may be.
    places: tuple[Path, ...] = ()
    started_ns: int = 0
    #: How it is known that the base is what the command sees: ``scanned``, ``watched``, `BESIDE`,
    #: or ``assumed`` until apply compares each path.
    base_known: str = "scanned"
    #: Recorded part by part while it runs: see `history/parts.py`.
    is_live: bool = False

    def to_payload(self) -> Detail:
        """For an intent; `from_payload` reads it."""
        return {
            "command_id": self.command_id, "span_id": self.span_id,
            "session_id": self.session_id, "agent_id": self.agent_id, "command": self.command,
            "base": self.base_commit.hex(), "world_id": self.world_id,
            "places": [str(place) for place in self.places], "started_ns": self.started_ns,
            "live": self.is_live, "base_known": self.base_known,
        }  # fmt: skip

    @classmethod
    def from_payload(cls, intent: Intent) -> Running:
        payload = intent.payload
        places = payload.get("places")
        agent_id = payload["agent_id"]
        return cls(
            str(payload["command_id"]),
            str(payload["span_id"]),
            str(payload["session_id"]),
            None if agent_id is None else str(agent_id),
            str(payload["command"]),
            bytes.fromhex(str(payload.get("base", ""))),
            intent.intent_id,
            world_id=str(payload.get("world_id", "")),
            places=tuple(Path(str(p)) for p in places) if isinstance(places, list) else (),
            started_ns=int(str(payload.get("started_ns", 0))),
            base_known=str(payload.get("base_known", "assumed")),
            is_live=bool(payload.get("live")),
        )


class Result(NamedTuple):
    """How a command ended, as far as history cares."""

    exit: int | None
    duration_ms: int | None
    detail: Detail


class Recorded(NamedTuple):
    entry: Entry
    changes: list[Change]
    #: Excluded paths that the command removed or replaced: their old content is not kept.
    excluded_gone: tuple[bytes, ...] = ()
    #: Paths that left history but not the disk: they are excluded now (grown over the size cap).
    still_there: frozenset[RelPath] = frozenset()
    #: The last commit that it made: the entry's, or that of its last part.
    last_commit: bytes | None = None


def ensure_baseline(store: HistoryStore, *, save_later: bool = False) -> bool:
    """The first state of the workspace, before anything is recorded. Inside the lock.

    Whether it was taken only now, so that the line agrees with the workspace already. Then with
    `save_later` the caller has `HistoryStore.save_seen` to call when there is time.
    """
    if store.tip_commit is not None:
        return False
    _check_nothing_recorded(store)
    baseline.take(store, save_later=save_later)
    return True


def _check_nothing_recorded(store: HistoryStore) -> None:
    if refs.list_refs(store.git_dir, "refs/"):
        raise DamagedStoreError(
            "the history index is empty although the history is not",
            hint="`substrate fsck --repair` rebuilds the index from the recorded commits",
        )


def record_outside(store: HistoryStore) -> Recorded | None:
    """Make the line agree with the workspace: edits nobody recorded become their own commit.

    Inside the lock. While a command runs without isolation its changes are still to come, so
    nothing is recorded for them here; they arrive with the command that ends first.
    """
    if ensure_baseline(store):
        return None
    new = NewEntry(ids.new_id("c"), "external", clock.now_ns(), "external-changes")
    beside = running_beside(store, None)
    if beside:
        new = new._replace(detail={"beside": list(beside)})
    with store.new_batch() as batch:
        seen = observe(store, batch)
        if not seen.changes:
            seen.save_cache(store, store.tip())
            return None
        new = new._replace(changed_files=count_files(seen.changes))
        entry = _extend(store, batch, seen, new)
    return Recorded(entry, seen.changes, tuple(seen.scan.excluded_gone))


class InWorld(NamedTuple):
    """The world a command is about to run in."""

    world_id: str
    places: tuple[Path, ...]
    #: Somebody has watched the workspace since the tip: nothing can have been missed.
    is_watched: bool = False
    #: Where something was written before the command began: the commit that the world was made
    #: from, and when.
    made_from: tuple[bytes, int] | None = None


def begin(
    store: HistoryStore,
    *,
    session: str | None,
    agent_id: str | None,
    command: str,
    exact: str,
    world: InWorld | None = None,
    is_live: bool = False,
    baseline_later: bool = False,
) -> Running:
    """Open a command: session chosen, outside edits recorded, an intent left in the ledger.

    For a world nothing is scanned: what the command changes is compared when it arrives. After the
    first of all `HistoryStore.save_seen` can wait until that runs. With `baseline_later` even the
    baseline can: then the command's `base_commit` is empty, and `base_of` tells it once somebody
    has taken the baseline.
    """
    known, since_ns = "scanned", None
    if baseline_later and world is not None and store.tip_commit is None:
        _check_nothing_recorded(store)
        since_ns = new_moment(store.dir / "journal")
    if since_ns is not None:
        known = BESIDE
    elif not ensure_baseline(store, save_later=world is not None):
        if world is not None:
            known = "watched" if world.is_watched else "assumed"
        elif not running_beside(store, None):
            record_outside(store)
    session_id = sessions.for_recording(store, session, agent_id)
    beside = () if world else running_beside(store, None)
    base, started_ns = store.tip_commit or b"", since_ns or clock.now_ns()
    if world is not None and world.made_from is not None and store.objects.has(world.made_from[0]):
        base, started_ns = world.made_from
    running = Running(
        ids.new_id("c"), ids.new_id("spn"), session_id, agent_id, command, base, "",
        beside, world.world_id if world else "", world.places if world else (),
        started_ns, known, is_live,
    )  # fmt: skip
    intent = store.new_intent(RUNNING, {**running.to_payload(), "exact": exact})
    # After a power cut nothing that a world held has reached the tree, so that its announcement
    # may be lost with it; on the real files it must not.
    with store.commit_point(durable=world is None) as ledger:
        ledger.add_intent(intent)
        sessions.touch(ledger, session_id)
    return running._replace(intent_id=intent.intent_id)


def base_of(store: HistoryStore, running: Running) -> bytes:
    """What a command began with; empty if that is not known yet, or the history was put aside."""
    if running.base_commit:
        return running.base_commit
    known = (one for one in store.ledger.intents() if one.intent_id == running.intent_id)
    return next((Running.from_payload(one).base_commit for one in known), b"")


def finish(store: HistoryStore, running: Running, result: Result) -> Recorded:
    """Close a command: what it changed becomes a commit; without a change there is none."""
    also = running_beside(store, running.intent_id)
    detail = dict(result.detail)
    if store.tip_commit is None and running.base_commit:
        detail["history_lost"] = True
    ensure_baseline(store)
    sessions.for_recording(store, running.session_id, running.agent_id)
    together = sorted({*running.beside, *also})
    if together:
        detail["beside"] = list(together)
    found = parts.parts_of(store, running.command_id, running.session_id) if running.is_live else []
    if running.is_live:
        detail[parts.PARTS] = len(found)
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
    )  # fmt: skip
    with store.new_batch() as batch:
        seen = observe(store, batch)
        if seen.scan.excluded_gone:
            detail["excluded_gone"] = [display(path) for path in seen.scan.excluded_gone]
        seen = _admit(store, batch, seen)
        changes = parts.together([parts.changes_of_all(store, found), seen.changes])
        new = new._replace(changed_files=count_files(changes))
        entry = _extend(store, batch, seen, new, drop_intent=running.intent_id)
    gone_from_history = {c.path for c in seen.changes if c.new == ABSENT}
    still_there = frozenset(gone_from_history & seen.scan.excluded.keys())
    last = entry.commit or (found[0].commit if found else None)
    return Recorded(entry, changes, tuple(seen.scan.excluded_gone), still_there, last)


def note(store: HistoryStore, running: Running, result: Result) -> Entry:
    """Close a command that changed nothing, as its world knows without a scan."""
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=dict(result.detail),
    )  # fmt: skip
    with store.commit_point() as ledger:
        entry = ledger.add(new, None)
        ledger.drop_intent(running.intent_id)
        sessions.touch(ledger, running.session_id)
    return entry


def running_beside(store: HistoryStore, own_intent: str | None) -> tuple[str, ...]:
    """Ids of the commands that are working right now on the real files of this workspace."""
    return tuple(
        str(intent.payload["command_id"])
        for intent in store.ledger.intents()
        if intent.kind == RUNNING
        and not intent.payload.get("world_id")
        and intent.intent_id != own_intent
        and is_alive(intent)
    )


def _admit(store: HistoryStore, batch: Batch, seen: Observation) -> Observation:
    """What was excluded until now is not the command's work: a commit of its own, before.

    Otherwise the undo of a command that changed ``.substrateignore`` would remove it. The cache
    is not saved here: it knows more than this commit does.
    """
    admitted = seen.scan.admitted
    if not admitted:
        return seen
    was_there = [
        change
        for change in seen.changes
        if change.old == ABSENT
        and (change.path in admitted or not admitted.isdisjoint(ancestors(change.path)))
    ]
    if was_there:
        new = NewEntry(
            ids.new_id("c"), "external", clock.now_ns(), "external-changes",
            changed_files=count_files(was_there), added_bytes=batch.added_bytes,
        )  # fmt: skip
        extension = Extension(store, batch, edited(batch, store.tip(), was_there), new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
    known = {change.path for change in was_there}
    return seen._replace(changes=[c for c in seen.changes if c.path not in known])


def _extend(
    store: HistoryStore,
    batch: Batch,
    seen: Observation,
    new: NewEntry,
    drop_intent: str | None = None,
) -> Entry:
    """Commit what was seen as `new`, or only note the entry when nothing changed."""
    snapshot = store.tip()
    extension = None
    if seen.changes:
        snapshot = edited(batch, snapshot, seen.changes)
        new = new._replace(added_bytes=batch.added_bytes)
        extension = Extension(store, batch, snapshot, new)
    with store.commit_point(batch) as ledger:
        entry = ledger.add(new, extension.commit if extension else None)
        if extension:
            extension.take_up(ledger)
        if drop_intent:
            ledger.drop_intent(drop_intent)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
        ledger.grew_by(new.added_bytes)
    seen.save_cache(store, snapshot)
    flush.flush_if_due(store)
    return entry
