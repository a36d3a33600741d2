"""Take one report of a coding agent's hook into history.

Reports may come late, twice, out of order, or not at all: each one is recorded by what it says
itself. Where there is no history yet, the report of a session, a prompt or a tool that is about to
run begins one, if the user agreed to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from substrate.coding_agents import EventKind, HookEvent, Say, announce, read_event
from substrate.errors import SubstrateError
from substrate.history.record import (
    AgentSession,
    agent_edits,
    agent_sessions,
    prompts,
    record_entry,
    sessions,
    tool_calls,
)
from substrate.history.store import HistoryStore
from substrate.recorder.agent_events import (
    edit_events,
    hook_time,
    join_calls,
    recording_consent,
    report_order,
    shell_events,
    user_notices,
)
from substrate.recorder.agent_events.acting_session import Acting, acting
from substrate.recorder.session_context import Place
from substrate.system import Environment, clock
from substrate.trace import TraceWriter
from substrate.trace.redact import redact
from substrate.workspace import known_projects

#: A longer prompt is cut in the record.
_MOST_TEXT = 64 << 10

#: A report waits this long for others: the baseline of a large project may be under way. The agent
#: does not wait for it.
_PATIENCE_S = 600.0
#: How long after a tool its announcement may still be on the way, and how often to look.
_AWAITED_NS = 5 * 10**9
_PAUSE_S = 0.05
#: The events that come before an agent changes anything.
_BEGINS = frozenset(
    {EventKind.SESSION_START, EventKind.PROMPT, EventKind.BEFORE_EDIT, EventKind.BEFORE_SHELL}
)

Taker = Callable[[Place, HistoryStore, HookEvent], None]


def take_report(
    environment: Environment, agent: str, data: bytes, say: Say = lambda text: False
) -> bool:
    """Record what a hook reports. Returns whether something was recorded."""
    event = read_event(agent, data)
    if event is None or "SUBSTRATE_WORLD_ID" in environment.variables:
        return False
    if event.kind in (EventKind.SESSION_START, EventKind.PROMPT) and not event.subagent:
        announce(environment.substrate_home, environment.variables, event.agent, event.session)
    with report_order.in_order(environment, event.session, hook_time.began_ns(environment)):
        return _taken(environment, event, say)


def _taken(environment: Environment, event: HookEvent, say: Say) -> bool:
    if event.kind in (EventKind.AFTER_EDIT, EventKind.AFTER_SHELL):
        _await_announcement(environment, event)
    taken = False
    for place in _places(environment, event):
        with _history(place) as store:
            with store.writing("record a coding agent's report", _PATIENCE_S):
                user_notices.give(place, store, event, say)
                _TAKERS[event.kind](place, store, event)
                # After the session's own record, which a large baseline should not delay.
                record_entry.ensure_baseline(store)
            if event.kind in join_calls.JOINING:
                join_calls.join(store, event, _PATIENCE_S)
            taken = True
    return taken


def _await_announcement(environment: Environment, event: HookEvent) -> None:
    """Wait for the report before the tool: where no daemon ran, the two are served in parallel.

    The agent does not wait for this, and it ends a few seconds after the hook began.
    """
    until_ns = hook_time.began_ns(environment) + _AWAITED_NS
    while clock.now_ns() < until_ns:
        places = _places(environment, event, begins=True)
        if all(_is_announced(place, event) for place in places):
            return
        time.sleep(_PAUSE_S)


def _is_announced(place: Place, event: HookEvent) -> bool:
    if not _has_history(place):
        return False
    if event.kind is EventKind.AFTER_EDIT:
        return True  # what the tool reports is enough
    whose = AgentSession(event.agent, event.session, event.subagent)
    with place.existing_history() as store:
        session_id = agent_sessions.find(store.ledger, whose)
        return session_id is not None and tool_calls.is_announced(
            store.ledger, session_id, event.call_id, event.tool
        )


def _history(place: Place) -> AbstractContextManager[HistoryStore]:
    """The history; one that `_places` lets a report begin is made here."""
    if _has_history(place):
        return place.existing_history()
    return _begun(place)


@contextmanager
def _begun(place: Place) -> Iterator[HistoryStore]:
    known_projects.note(place.environment.substrate_home, place.workspace.root)
    with place.history() as store:
        if store.tip_commit is None:
            with store.writing("first use", _PATIENCE_S), store.commit_point() as ledger:
                ledger.set_meta(user_notices.NOTICE_DUE, 1)
        yield store


def _has_history(place: Place) -> bool:
    return os.path.exists(place.workspace.store / "index" / "history.db")


def _places(
    environment: Environment, event: HookEvent, *, begins: bool | None = None
) -> list[Place]:
    """The workspaces that the event concerns: the agent's, and those of its files.

    A history begins in the agent's own workspace only: an agent also writes to its settings.
    """
    begins = event.kind in _BEGINS if begins is None else begins
    directories = [event.cwd]
    directories += [os.path.dirname(edit_events.absolute(event, edit.path)) for edit in event.edits]
    found: dict[Path, Place] = {}
    for directory in dict.fromkeys(directories):
        try:
            place = Place.at(Path(_existing(directory)), environment, None, event.agent)
        except (SubstrateError, OSError):
            continue
        if place.workspace.history_refused or recording_consent.is_denied(place):
            continue
        may_begin = begins and directory == event.cwd
        if _has_history(place) or (may_begin and recording_consent.may_begin(place, event.agent)):
            found.setdefault(place.workspace.root, place)
    if event.edits:
        return [p for p in found.values() if edit_events.reported(p, event)]
    return list(found.values())


def _existing(directory: str) -> str:
    """The directory, or the nearest one above it that is there: a tool may be about to make it."""
    while not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return os.path.realpath(directory)


def _session_start(place: Place, store: HistoryStore, event: HookEvent) -> None:
    whose = AgentSession(event.agent, event.session, event.subagent)
    session_id = agent_sessions.ensure(store, whose, model=event.model or None)
    with store.commit_point(durable=False) as ledger:
        sessions.touch(ledger, session_id)


def _session_end(place: Place, store: HistoryStore, event: HookEvent) -> None:
    session_id = agent_sessions.find(store.ledger, AgentSession(event.agent, event.session))
    if session_id is None:
        return
    with store.commit_point() as ledger:
        agent_sessions.end(ledger, session_id)
    _drop_calls(store, session_id)


def _drop_calls(store: HistoryStore, session_id: str) -> None:
    """Calls that were never reported as finished: others may record their files again."""
    own = agent_sessions.with_children(store.ledger, session_id)
    left = tool_calls.paths_of(store.ledger, own)
    if left:
        agent_edits.record_outside_of(store, left, clock.now_ns())
    with store.commit_point(durable=False) as ledger:
        for one in own:
            tool_calls.drop(ledger, one)


def _prompt(place: Place, store: HistoryStore, event: HookEvent) -> None:
    whose = AgentSession(event.agent, event.session)
    session_id = agent_sessions.ensure(store, whose, model=event.model or None)
    model = event.model or agent_sessions.model_of(store.ledger, session_id)
    text = redact(event.text[:_MOST_TEXT])
    with store.commit_point() as ledger:
        made = prompts.begin(
            ledger, session_id, agent_prompt=event.prompt, text=text, model=model or None,
            started_ns=hook_time.began_ns(place.environment),
        )  # fmt: skip
        agent_sessions.adopt_entries(ledger, made)
        sessions.touch(ledger, session_id)
    TraceWriter.of(place.environment).append({
        "ts": clock.iso(made.started_ns), "event_type": "prompt", "session_id": session_id,
        "prompt_id": made.prompt_id, "agent_id": event.agent, "model": made.model,
        "workspace": os.fsdecode(place.workspace.root), "text": made.text,
    })  # fmt: skip


def _prompt_end(place: Place, store: HistoryStore, event: HookEvent) -> None:
    session_id = agent_sessions.find(store.ledger, AgentSession(event.agent, event.session))
    if session_id is None or event.subagent:
        return
    with store.commit_point() as ledger:
        prompts.end(ledger, session_id, hook_time.began_ns(place.environment))
    _drop_calls(store, session_id)


def _with_acting(work: Callable[[Place, HistoryStore, HookEvent, Acting], None]) -> Taker:
    def take(place: Place, store: HistoryStore, event: HookEvent) -> None:
        work(place, store, event, acting(store, event, hook_time.began_ns(place.environment)))

    return take


_TAKERS: dict[EventKind, Taker] = {
    EventKind.SESSION_START: _session_start,
    EventKind.SESSION_END: _session_end,
    EventKind.PROMPT: _prompt,
    EventKind.PROMPT_END: _prompt_end,
    EventKind.BEFORE_EDIT: _with_acting(edit_events.before_edit),
    EventKind.AFTER_EDIT: _with_acting(edit_events.after_edit),
    EventKind.BEFORE_SHELL: _with_acting(shell_events.before_shell),
    EventKind.AFTER_SHELL: _with_acting(shell_events.after_shell),
}
