"""A recorded session as a pack: its commands as steps, from the tree it really started from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate import __version__
from substrate.errors import NotFoundError
from substrate.history import sessions
from substrate.history.ledger import Entry
from substrate.history.sessions import Session
from substrate.history.store import HistoryStore
from substrate.objects.snapshot import Snapshot
from substrate.packs.create import publish
from substrate.packs.manifest import Environment, Manifest, Model, Pack
from substrate.packs.objects import Objects
from substrate.packs.store import Store
from substrate.recorder import ask, tool_versions
from substrate.recorder.place import Place
from substrate.recorder.session_steps import Json, SessionBuilder
from substrate.system import platform
from substrate.trace.reader import TraceReader

#: Stands for the most recently active session.
LATEST = "@"


class PackedSession(NamedTuple):
    pack: Pack
    session_id: str
    notes: tuple[str, ...]


def pack_session(place: Place, store: Store, named: str | None) -> PackedSession:
    """Keep a session as a pack that needs neither the project nor its history any more."""
    with place.existing_history() as history, store.writing("packing a session"):
        session = sessions.for_question(history, None if named == LATEST else named)
        entries = entries_of(history, session)
        builder = build(place, history, store.objects, entries, session, exact=False)
        last = _after(history, entries[-1])
        manifest = _manifest(place, store.objects, builder, session, entries, last)
        pack = publish(store, manifest)
    return PackedSession(pack, session.session_id, tuple(_notes(builder, entries)))


def entries_of(history: HistoryStore, session: Session) -> list[Entry]:
    """Everything on the line from the session's first entry to its last, oldest first.

    What others did in between belongs to it: the session's later commands saw it.
    """
    line = list(history.ledger.iterate_live())
    line.reverse()
    own = [n for n, entry in enumerate(line) if entry.session_id == session.session_id]
    found = line[own[0] : own[-1] + 1] if own else []
    if not found:
        raise NotFoundError(
            f"session {session.session_id} has no commands to pack",
            hint="`substrate session list` shows the sessions and how many commands they ran",
        )
    return found


def build(
    place: Place,
    history: HistoryStore,
    objects: Objects,
    entries: list[Entry],
    session: Session | None,
    *,
    exact: bool,
) -> SessionBuilder:
    """The base tree and the steps of these entries; all but the session's own are others'."""
    spans = spans_of(place, entries)
    builder = SessionBuilder(history, objects, spans, exact=exact)
    before, commit = before_entry(history, entries[0])
    builder.base(before, place.workspace.root, commit)
    for entry in entries:
        is_own = session is None or entry.session_id == session.session_id
        if "held" in entry.detail and entry.commit is None:
            continue  # it waits, or was discarded: nobody ever saw what it did
        if entry.kind == "command" and is_own and "of" not in entry.detail:
            builder.command(entry, ask.changes_of(history, entry))
        elif entry.kind == "squash" and is_own:
            _squashed(history, builder, entry)
        else:
            builder.outside(entry, ask.changes_of(history, entry))
    return builder


def _squashed(history: HistoryStore, builder: SessionBuilder, squash: Entry) -> None:
    """Compacted commands: what they changed is known only of all together."""
    members = [entry for entry in _members(history, squash) if entry.kind == "command"]
    for entry in members[:-1]:
        builder.command(entry, None)
    if members:
        builder.command(members[-1], ask.changes_of(history, squash))
    else:
        builder.outside(squash, ask.changes_of(history, squash))


def _members(history: HistoryStore, squash: Entry) -> Iterable[Entry]:
    for entry in history.ledger.members(squash.command_id):
        if entry.kind == "squash":
            yield from _members(history, entry)
        else:
            yield entry


def before_entry(history: HistoryStore, entry: Entry) -> tuple[Snapshot, bytes | None]:
    """The tree that an entry started from, and its commit."""
    if entry.commit is not None:
        parents = history.objects.read_commit(entry.commit).parents
        if parents:
            return history.snapshot_of(parents[0]), parents[0]
        return history.snapshot_of(entry.commit), entry.commit  # the baseline: it only was
    earlier = history.ledger.previous_commit(entry.pos)
    if earlier is None or earlier.commit is None:
        raise NotFoundError(
            f"the tree that {entry.command_id} started from is not recorded",
            hint="`substrate fsck` checks the history",
        )
    return history.snapshot_of(earlier.commit), earlier.commit


def _after(history: HistoryStore, entry: Entry) -> Snapshot:
    if entry.commit is not None:
        return history.snapshot_of(entry.commit)
    return before_entry(history, entry)[0]


def spans_of(place: Place, entries: Iterable[Entry]) -> dict[str, Json]:
    """The completed spans of these entries, as far as the trace still has them."""
    wanted = {entry.span_id for entry in entries if entry.span_id}
    if not wanted:
        return {}
    found = {}
    for span in TraceReader(place.environment.trace_path).spans():
        if span.get("span_id") in wanted and span.get("event_type") == "command_complete":
            found[str(span["span_id"])] = span
    return found


def _manifest(
    place: Place,
    objects: Objects,
    builder: SessionBuilder,
    session: Session,
    entries: list[Entry],
    last: Snapshot,
) -> Manifest:
    names = tool_versions.programs_of(builder.commands)
    path = place.environment.get("PATH") or ""
    versions = tool_versions.versions_of(names, path, since_ns=entries[-1].ts_ns)
    parameters: Json = {"session_id": session.session_id}
    if session.agent_id:
        parameters["agent_id"] = session.agent_id
    return Manifest(
        created=builder.steps[-1].timestamp,
        # Which model was behind the session, if one was, history does not know.
        model=Model(session.agent_id or "unknown", parameters),
        system_prompt=objects.write(b"").ref,
        prompts=(),
        inputs=builder.all_inputs(),
        steps=tuple(builder.steps),
        outputs=builder.outputs(last),
        environment=Environment(platform.os_name(), f"substrate {__version__}", versions),
    )


def _notes(builder: SessionBuilder, entries: list[Entry]) -> Iterable[str]:
    if builder.redacted:
        steps = ", ".join(map(str, builder.redacted))
        yield f"secrets in the commands of steps {steps} are placeholders in the pack"
    if builder.without_stdout:
        yield (
            f"of {builder.without_stdout} commands no output was kept: "
            "a replay compares their exit status and the files they changed"
        )
    if builder.without_span:
        yield (
            f"of {builder.without_span} commands the trace no longer has the environment: "
            "a replay uses the present one"
        )
    outside = any(entry.kind == "external" for entry in entries)
    if outside and any(entry.detail.get("base_known") == "assumed" for entry in entries):
        yield (
            "others edited files meanwhile, and nobody watched: which commands saw these edits is "
            "not known, and a replay makes them at the time they were noticed"
        )
    if any("held" in entry.detail and entry.commit is None for entry in entries):
        yield "commands whose worlds were held are no steps; what `world apply` brought in is"
    if any(entry.detail.get("beside") for entry in entries):
        yield "commands ran side by side: which of them changed what cannot be told for certain"
