"""Recording what a command changed, and edits made outside Substrate."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, ExternalEditsError
from substrate.history.record import agent_sessions, late_entry, live_parts, sessions
from substrate.history.record.agent_sessions import AgentSession
from substrate.history.record.decided_parts import DecidedParts
from substrate.history.record.scan_against_tip import (
    HashOnly,
    Observation,
    changed_paths,
    count_files,
    edited,
    observe,
)
from substrate.history.store import (
    Detail,
    Entry,
    Extension,
    HistoryStore,
    Intent,
    NewEntry,
    pack_small_objects,
)
from substrate.model import ABSENT, Change, RelPath, ancestors, display
from substrate.objects.store import Batch, refs
from substrate.system import clock, ids
from substrate.system.sync import liveness_locks as alive
from substrate.workspace import METADATA
from substrate.workspace.paths import new_moment

RUNNING = "running"
_SHOWN_NAMES = 10
#: A base taken while the command was already running. It may contain changes of other processes
#: that the command did not see. `Running.started_ns` is then by the clock that stamps files.
BESIDE = "beside"
#: In an entry's detail: files on another mount inside the workspace changed, and no copy is kept.
ON_MOUNTS = "on_mounts"


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
    #: Other commands that ran when this one started: their changes cannot be separated.
    beside: tuple[str, ...] = ()
    #: The world it runs in; empty: on the real files.
    world_id: str = ""
    #: Where that world's directory may be.
    places: tuple[Path, ...] = ()
    started_ns: int = 0
    #: How it is known that the base is what the command sees: ``scanned``, ``watched``, `BESIDE`,
    #: or ``assumed`` until apply compares each path.
    base_known: str = "scanned"
    #: Recorded part by part while it runs: see `history/record/live_parts.py`.
    is_live: bool = False
    #: The token of the lock that its recorder holds until it calls `over`; see
    #: `system/sync/liveness_locks.py`.
    alive: str = ""
    #: More for its entry's detail, known at its start: the prompt and the tool call behind it.
    about: Detail = {}  # noqa: RUF012  a tuple: its default is replaced, never changed
    #: Of a held world: the paths that the user has decided on already.
    parts: DecidedParts = DecidedParts()

    def to_payload(self) -> Detail:
        """For an intent; `from_payload` reads it."""
        return {
            "command_id": self.command_id, "span_id": self.span_id,
            "session_id": self.session_id, "agent_id": self.agent_id, "command": self.command,
            "base": self.base_commit.hex(), "world_id": self.world_id,
            "places": [str(place) for place in self.places], "started_ns": self.started_ns,
            "live": self.is_live, "base_known": self.base_known, "about": self.about,
            **self.parts.to_payload(),
        }  # fmt: skip

    @classmethod
    def from_payload(cls, intent: Intent) -> Running:
        payload = intent.payload
        places = payload.get("places")
        agent_id, about = payload["agent_id"], payload.get("about")
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
            about=about if isinstance(about, dict) else {},
            parts=DecidedParts.from_payload(payload),
        )


class Result(NamedTuple):
    """How a command ended, as far as history records it."""

    exit: int | None
    duration_ms: int | None
    detail: Detail

    def with_outcome(self, word: str) -> Result:
        """Note that the change did not (fully) arrive, unless the command itself ended early."""
        if self.detail.get("outcome") in ENDED_EARLY:
            return self
        return self._replace(detail={**self.detail, "outcome": word})


class Recorded(NamedTuple):
    entry: Entry
    changes: list[Change]
    #: Excluded paths that the command removed or replaced: their old content is not kept.
    excluded_gone: tuple[bytes, ...] = ()
    #: Paths that left history but not the disk: now excluded, because they exceed the size cap.
    still_there: frozenset[RelPath] = frozenset()
    #: The last commit that it made: the entry's, or that of its last part.
    last_commit: bytes | None = None
    #: Excluded directories: a scan does not see what the command did in them.
    not_seen: tuple[RelPath, ...] = ()


def ensure_baseline(store: HistoryStore, *, save_later: bool = False) -> bool:
    """Take the baseline if there is none, before anything is recorded. Inside the lock.

    Returns whether it was taken now: then history already agrees with the workspace, and with
    `save_later` the caller must call `HistoryStore.save_seen` when there is time.
    """
    if store.tip_commit is not None:
        return False
    _check_nothing_recorded(store)
    from substrate.history.record import baseline  # large, and needed once per workspace

    baseline.take(store, save_later=save_later)
    return True


def _check_nothing_recorded(store: HistoryStore) -> None:
    if refs.list_refs(store.git_dir, "refs/"):
        raise DamagedStoreError(
            "the history index is empty although the history is not",
            hint="`substrate fsck --repair` rebuilds the index from the recorded commits",
        )


def refuse_outside(store: HistoryStore) -> None:
    """With `history.external = "refuse"`: raise an error if there are unrecorded edits.

    It costs a scan. Inside the lock.
    """
    if store.config.refuses_external and store.tip_commit is not None:
        _refuse(store, observe(store, HashOnly()).changes)


def _refuse(store: HistoryStore, changes: list[Change]) -> None:
    if not changes or not store.config.refuses_external or store.ledger.is_rehearsing:
        return
    paths = changed_paths(changes)
    names = ", ".join(display(path) for path in paths[:_SHOWN_NAMES])
    more = f" and {len(paths) - _SHOWN_NAMES} more" if len(paths) > _SHOWN_NAMES else ""
    raise ExternalEditsError(
        f"nothing was done: files were edited outside Substrate: {names}{more}",
        hint="record them with `substrate status --accept`, or take the edits back"
        ' (history.external is "refuse")',
    )


def record_outside(store: HistoryStore, *, accepts: bool = False) -> Recorded | None:
    """Make history agree with the workspace: unrecorded edits become a commit of their own.

    With `history.external = "refuse"` they are an error, unless the caller `accepts` them.
    Inside the lock. The entry names the commands that run without isolation at this time, because
    the edits may be theirs.
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
        if not accepts:
            _refuse(store, seen.changes)
        new = new._replace(changed_files=count_files(seen.changes))
        entry = _extend(store, batch, seen, new)
    return Recorded(entry, seen.changes, tuple(seen.scan.excluded_gone))


#: Outcomes of commands that did not run to their own end.
ENDED_EARLY = ("timed_out", "not_started", "killed", "interrupted")


class InWorld(NamedTuple):
    """The world a command is about to run in."""

    world_id: str
    places: tuple[Path, ...]
    #: A watcher has run since the tip was recorded: no outside edit can have been missed.
    is_watched: bool = False
    #: Set if something was written in the world before the command began: the commit that the
    #: world was made from, and when.
    made_from: tuple[bytes, int] | None = None
    #: More for the entry's detail: which attempt it is.
    about: Detail = {}  # noqa: RUF012  a tuple: its default is replaced, never changed


def begin(
    store: HistoryStore,
    *,
    session: str | AgentSession | None,
    agent_id: str | None,
    command: str,
    exact: str,
    world: InWorld | None = None,
    is_live: bool = False,
    baseline_later: bool = False,
) -> Running:
    """Open a command: choose its session, record outside edits, write an intent to the ledger.

    For a world nothing is scanned: what the command changes is compared when it arrives. After the
    very first baseline, `HistoryStore.save_seen` can wait until the command runs. With
    `baseline_later` the baseline itself can wait, too: then the command's `base_commit` is empty,
    and `base_of` returns it once another process has taken the baseline. `session`: one of ours
    that the call names, or that of the coding agent that runs it.
    """
    known, since_ns = "scanned", None
    if baseline_later and world is not None and store.tip_commit is None:
        _check_nothing_recorded(store)
        since_ns = new_moment(store.dir / "journal")
    if since_ns is not None:
        known = BESIDE
    elif not ensure_baseline(store, save_later=world is not None):
        if world is not None:
            refuse_outside(store)
            known = "watched" if world.is_watched else "assumed"
        elif not running_beside(store, None):
            record_outside(store)
    session_id = agent_sessions.for_command(store, session, agent_id)
    beside = () if world else running_beside(store, None)
    base, started_ns = store.tip_commit or b"", since_ns or clock.now_ns()
    if world is not None and world.made_from is not None and store.objects.has(world.made_from[0]):
        base, started_ns = world.made_from
    running = Running(
        ids.new_id("c"), ids.new_id("spn"), session_id, agent_id, command, base, "",
        beside, world.world_id if world else "", world.places if world else (),
        started_ns, known, is_live,
    )  # fmt: skip
    running = running._replace(
        alive=alive.hold(store.dir),
        about={
            **agent_sessions.about(store.ledger, session_id, session),
            **(world.about if world else {}),
        },
    )
    payload = {**running.to_payload(), "exact": exact, "alive": running.alive}
    intent = store.new_intent(RUNNING, payload)
    # A power cut loses a running world's change before it reaches the tree, so its intent may be
    # lost, too. A command on the real files needs a durable intent.
    with store.commit_point(durable=world is None) as ledger:
        ledger.add_intent(intent)
        sessions.touch(ledger, session_id)
    return running._replace(intent_id=intent.intent_id)


def over(store: Path, running: Running) -> None:
    """The recorder has finished with the command or failed: the next call may settle it."""
    alive.release(store, running.alive)


def base_of(store: HistoryStore, running: Running) -> bytes:
    """The base commit of a command; empty if not known yet, or if the history was put aside."""
    if running.base_commit:
        return running.base_commit
    known = (one for one in store.ledger.intents() if one.intent_id == running.intent_id)
    return next((Running.from_payload(one).base_commit for one in known), b"")


def finish(store: HistoryStore, running: Running, result: Result) -> Recorded:
    """Close a command: what it changed becomes a commit; no change, no commit."""
    also = running_beside(store, running.intent_id)
    detail = store.kept_detail({**running.about, **result.detail}, running.command)
    if store.tip_commit is None and running.base_commit:
        detail["history_lost"] = True
    ensure_baseline(store)
    sessions.for_recording(store, running.session_id, running.agent_id)
    together = sorted({*running.beside, *also})
    if together:
        detail["beside"] = list(together)
    found = (
        live_parts.parts_of(store, running.command_id, running.session_id)
        if running.is_live
        else []
    )
    if running.is_live:
        detail[live_parts.PARTS] = len(found)
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
        changes = live_parts.together([live_parts.changes_of_all(store, found), seen.changes])
        new = new._replace(changed_files=count_files(changes))
        entry = _extend(store, batch, seen, new, drop_intent=running.intent_id)
    gone_from_history = {c.path for c in seen.changes if c.new == ABSENT}
    still_there = frozenset(gone_from_history & seen.scan.excluded.keys())
    last = entry.commit or (found[0].commit if found else None)
    hidden = tuple(p for p, why in sorted(seen.scan.excluded.items()) if why != METADATA)
    return Recorded(entry, changes, tuple(seen.scan.excluded_gone), still_there, last, hidden)


def note_other_mounts(store: HistoryStore, entry: Entry) -> None:
    """Files on a mount inside the workspace changed while the command ran. Inside the lock."""
    with store.commit_point() as ledger:
        ledger.add_detail(entry, **{ON_MOUNTS: True})


def note(store: HistoryStore, running: Running, result: Result) -> Entry:
    """Close a command that changed nothing; its world shows that without a scan."""
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms,
        detail=store.kept_detail({**running.about, **result.detail}, running.command),
    )  # fmt: skip
    with store.commit_point() as ledger:
        entry = late_entry.add(ledger, new, None)
        ledger.drop_intent(running.intent_id)
        sessions.touch(ledger, running.session_id)
    return entry


def running_beside(store: HistoryStore, own_intent: str | None) -> tuple[str, ...]:
    """Ids of the commands that run right now on the real files of this workspace."""
    return tuple(
        str(intent.payload.get("command_id", intent.intent_id))
        for intent in store.ledger.intents()
        if intent.kind == RUNNING
        and not intent.payload.get("world_id")
        and intent.intent_id != own_intent
        and store.is_alive(intent)
    )


def _admit(store: HistoryStore, batch: Batch, seen: Observation) -> Observation:
    """Record files that were excluded until now in a commit of their own, before the command's.

    Otherwise the undo of a command that changed ``.substrateignore`` would remove them. The stat
    cache is not saved here: it already includes the command's change.
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
        new = late_entry.named(store.ledger, new._replace(added_bytes=batch.added_bytes))
        extension = Extension(store, batch, snapshot, new)
    with store.commit_point(batch) as ledger:
        entry = late_entry.add(ledger, new, extension.commit if extension else None)
        if extension:
            extension.take_up(ledger)
        if drop_intent:
            ledger.drop_intent(drop_intent)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
        ledger.grew_by(new.added_bytes)
    seen.save_cache(store, snapshot)
    pack_small_objects.flush_if_due(store)
    return entry
