"""A transcript as a pack that replays: the project's own history has the trees that it lacks.

A transcript shows only the files that the agent read or edited. Where Substrate recorded the same
session, its history knows the whole tree before the first call and each changed file at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from substrate.errors import NotFoundError
from substrate.history.record import agent_sessions
from substrate.history.store import Entry, HistoryStore
from substrate.packs.store import Store
from substrate.packs.transcripts import PackedTranscript, Session, Trees, pack_transcript
from substrate.recorder import queries
from substrate.recorder.packing.session_steps import SessionBuilder
from substrate.recorder.packing.session_to_pack import after_entry, before_entry
from substrate.recorder.session_context import Place

#: What the transcripts' readers call an agent, and what its hooks call it.
_AGENTS = {"gemini": "gemini-cli"}


def pack_agent_transcript(
    place: Place, store: Store, agent: str, lines: Iterable[bytes], directory: Path | None
) -> PackedTranscript:
    """`directory` is the transcript's.

    Only the project that the caller works in is looked at: a transcript is text from elsewhere,
    and must not name another project's files into a pack.
    """

    def find_trees(session: Session) -> Trees | None:
        root = place.workspace.root
        if not session.root or os.path.realpath(session.root) != os.path.realpath(root):
            return None
        try:
            with place.existing_history() as history:
                return _trees(place, history, store, session)
        except NotFoundError:
            return None  # nothing was ever recorded here

    return pack_transcript(store, agent, lines, directory=directory, find_trees=find_trees)


def _trees(place: Place, history: HistoryStore, store: Store, session: Session) -> Trees | None:
    own = _own_entries(history, session)
    first = own[0] if own else _newest_before(history, session.began_ns)
    if first is None:
        return None
    tree, commit = before_entry(history, first) if own else after_entry(history, first)
    builder = SessionBuilder(history, store.objects, {}, exact=False)
    builder.base(tree, place.workspace.root, commit)
    if not own:
        when = "the newest state that history has from before the session"
        return Trees(builder.all_inputs(), None, False, f"the base tree is {when}")
    for entry in own:
        builder.changed_by_session(queries.changes_of(history, entry))
    outputs = builder.outputs(after_entry(history, own[-1])[0])
    return Trees(
        builder.all_inputs(), outputs, True,
        "the base tree and the outputs are those that history recorded for this session",
    )  # fmt: skip


def _own_entries(history: HistoryStore, session: Session) -> list[Entry]:
    """What the agent's session and its sub-agents changed, oldest first."""
    if not session.session_id:
        return []
    name = _AGENTS.get(session.agent, session.agent)
    whose = agent_sessions.AgentSession(name, session.session_id)
    session_id = agent_sessions.find(history.ledger, whose)
    if session_id is None:
        return []
    ours = set(agent_sessions.with_children(history.ledger, session_id))
    found = [entry for entry in history.ledger.iterate_live() if entry.session_id in ours]
    found.reverse()
    return found


def _newest_before(history: HistoryStore, when_ns: int | None) -> Entry | None:
    if when_ns is None:
        return None
    for entry in history.ledger.iterate_live():
        if entry.commit is not None and entry.ts_ns <= when_ns:
            return entry
    return None
