"""A recorded session as a pack: its commands as steps, and the tree it started from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate import __version__
from substrate.errors import NotFoundError
from substrate.history.record import Session, agent_sessions, prompts, sessions
from substrate.history.store import Entry, HistoryStore, Ledger
from substrate.objects.snapshots import Snapshot
from substrate.packs.format import Environment, Manifest, Model, Pack, Prompt
from substrate.packs.store import Objects, Store, publish
from substrate.recorder import queries
from substrate.recorder.packing.session_steps import Json, SessionBuilder
from substrate.recorder.replay import tool_versions
from substrate.recorder.session_context import Place
from substrate.system.process import process_identity
from substrate.trace import TraceReader

#: Means the most recently active session.
LATEST = "@"


class PackedSession(NamedTuple):
    pack: Pack
    session_id: str
    notes: tuple[str, ...]


def pack_session(place: Place, store: Store, named: str | None) -> PackedSession:
    """Save a session as a pack that needs neither the project nor its history."""
    with place.existing_history() as history, store.writing("packing a session"):
        session = sessions.for_question(history, None if named == LATEST else named)
        entries = entries_of(history, session)
        builder = build(place, history, store.objects, entries, session, exact=False)
        last, _ = after_entry(history, entries[-1])
        manifest = _manifest(place, store.objects, builder, session, entries, last)
        manifest = _with_prompts(manifest, store.objects, history.ledger, session)
        pack = publish(store, manifest)
    return PackedSession(pack, session.session_id, tuple(_notes(builder, entries)))


def entries_of(history: HistoryStore, session: Session) -> list[Entry]:
    """Everything on the line from the session's first entry to its last, oldest first.

    That includes what others did in between: the session's later commands saw it.
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
    """The base tree and the steps of these entries; entries of other sessions are outside steps."""
    spans = spans_of(place, entries)
    builder = SessionBuilder(history, objects, spans, exact=exact)
    before, commit = before_entry(history, entries[0])
    builder.base(before, place.workspace.root, commit)
    for entry in entries:
        is_own = session is None or entry.session_id == session.session_id
        if "held" in entry.detail and entry.commit is None:
            continue  # held or discarded: no other command ever saw its change
        if entry.kind == "command" and is_own and "of" not in entry.detail:
            builder.command(entry, queries.changes_of(history, entry))
        elif entry.kind == "squash" and is_own:
            _squashed(history, builder, entry)
        else:
            changes = queries.changes_of(history, entry)
            if entry.kind == "edit" and is_own:  # by the agent's own tool: replay applies it
                builder.changed_by_session(changes)
            builder.outside(entry, changes)
    return builder


def _squashed(history: HistoryStore, builder: SessionBuilder, squash: Entry) -> None:
    """Compacted commands: their changes are known only all together."""
    members = [entry for entry in _members(history, squash) if entry.kind == "command"]
    for entry in members[:-1]:
        builder.command(entry, None)
    if members:
        builder.command(members[-1], queries.changes_of(history, squash))
    else:
        builder.outside(squash, queries.changes_of(history, squash))


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
        return history.snapshot_of(entry.commit), entry.commit  # the baseline changed nothing
    earlier = history.ledger.previous_commit(entry.pos)
    if earlier is None or earlier.commit is None:
        raise NotFoundError(
            f"the tree that {entry.command_id} started from is not recorded",
            hint="`substrate fsck` checks the history",
        )
    return history.snapshot_of(earlier.commit), earlier.commit


def after_entry(history: HistoryStore, entry: Entry) -> tuple[Snapshot, bytes | None]:
    """The tree that an entry left, and its commit."""
    if entry.commit is not None:
        return history.snapshot_of(entry.commit), entry.commit
    return before_entry(history, entry)


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
        model=Model(session.agent_id or "unknown", parameters),
        system_prompt=objects.write(b"").ref,
        prompts=(),
        inputs=builder.all_inputs(),
        steps=tuple(builder.steps),
        outputs=builder.outputs(last),
        environment=Environment(process_identity.os_name(), f"substrate {__version__}", versions),
    )


def _with_prompts(
    manifest: Manifest, objects: Objects, ledger: Ledger, session: Session
) -> Manifest:
    """The prompts that led to the session's commands, and the model that its agent named."""
    ours = agent_sessions.with_children(ledger, session.session_id)
    asked = [one for one in prompts.of_sessions(ledger, ours) if one.text]
    model = agent_sessions.model_of(ledger, session.session_id) or next(
        (one.model for one in asked if one.model), None
    )
    named = manifest.model._replace(identifier=model) if model else manifest.model
    return manifest._replace(
        model=named,
        prompts=tuple(
            Prompt("user", objects.write(one.text.encode("utf-8", "surrogatepass")).ref)
            for one in asked
        ),
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
            "files were edited outside Substrate while no daemon watched the project, so the exact"
            " time of these edits is not known: a replay makes them where they were noticed, and a"
            " command that reads such a file may give another result (`substrate daemon status`"
            " shows whether the project is watched now)"
        )
    if any("held" in entry.detail and entry.commit is None for entry in entries):
        yield "commands whose worlds were held are no steps; what `world apply` brought in is"
    if any(entry.detail.get("beside") for entry in entries):
        yield "commands ran side by side: which of them changed what is not certain"
