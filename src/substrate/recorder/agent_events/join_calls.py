"""Join Claude Code's shell commands, which ran in worlds, with the tool calls that asked for them.

No hook reports a Bash call: a pair of hooks would cost every call 8 to 24 ms. The command's
environment names only the session. So when a prompt begins or ends, and at the end of the session,
its transcript says the rest: tool call id, model, sub-agent and prompt.

A command and a call belong together if the session and the text are equal; equal texts are joined
in order:

    transcript   make test (toolu_1)   make test (toolu_2, refused)   make test (toolu_3)
    history      make test ─ toolu_1                                  make test ─ toolu_3
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from substrate.coding_agents import EventKind, HookEvent, ShellCall, shell_calls, typed
from substrate.history.record import AgentSession, agent_sessions, prompts
from substrate.history.store import PROMPT_ID, Detail, Entry, HistoryStore
from substrate.system import clock
from substrate.trace.redact import redact

#: After which events the transcript is read.
JOINING = frozenset({EventKind.PROMPT, EventKind.PROMPT_END, EventKind.SESSION_END})
#: How many of a session's newest entries may wait for their call, and for how long.
_LOOK_BACK = 500
_LONGEST_NS = 24 * 3600 * 10**9
#: A command's recorded start and the transcript's times are not exact.
_BEFORE_NS, _AFTER_NS = 1 * 10**9, 5 * 10**9

#: A sub-agent's calls may have the ids of its parent's.
CallKey = tuple[str, str]


def join(store: HistoryStore, event: HookEvent, patience_s: float) -> int:
    """Returns how many commands were joined. Takes the lock only to write."""
    session_id = agent_sessions.find(store.ledger, AgentSession(event.agent, event.session))
    if session_id is None or not event.transcript:
        return 0
    waiting, known = _commands(store, session_id)
    if not waiting:
        return 0
    since_ns = min(_started_ns(entry) for entry in waiting) - _LONGEST_NS
    calls = shell_calls(Path(event.transcript), since_ns)
    pairs = _pairs(waiting, [call for call in calls if _key(call) not in known])
    if not pairs:
        return 0
    writing = store.writing("join a coding agent's tool calls", patience_s)
    with writing, store.commit_point(durable=False) as ledger:
        for command_id, call in pairs:
            entry = ledger.by_command_id(command_id)
            if entry is not None and not _call_id(entry):
                ledger.add_detail(entry, **_about(store, session_id, call))
    return len(pairs)


def _commands(store: HistoryStore, session_id: str) -> tuple[list[Entry], set[CallKey]]:
    """The session's commands without a call, oldest first, and the calls of the others."""
    waiting: list[Entry] = []
    known: set[CallKey] = set()
    oldest_ns = clock.now_ns() - _LONGEST_NS
    for entry in store.ledger.live(session_id=session_id, limit=_LOOK_BACK):
        if entry.kind != "command" or "isolation" not in entry.detail:
            continue
        if _call_id(entry):
            known.add((_subagent_id(entry), _call_id(entry)))
        elif entry.ts_ns >= oldest_ns:
            waiting.append(entry)
    return sorted(waiting, key=_started_ns), known


def _pairs(waiting: list[Entry], calls: list[ShellCall]) -> list[tuple[str, ShellCall]]:
    left: dict[str, list[ShellCall]] = defaultdict(list)
    for call in calls:
        # The user may want history to keep redacted texts only.
        for words in {call.command.strip(), redact(call.command).strip()}:
            left[words].append(call)
    pairs: dict[CallKey, tuple[str, ShellCall]] = {}
    for entry in waiting:
        started_ns = _started_ns(entry)
        candidates = left[typed(str(entry.detail.get("exact", entry.command))).strip()]
        fitting = (one for one in candidates if _key(one) not in pairs and _fits(one, started_ns))
        for first in fitting:
            pairs[_key(first)] = (entry.command_id, first)
            break
    return list(pairs.values())


def _fits(call: ShellCall, started_ns: int) -> bool:
    is_over = call.answered_ns is not None and call.answered_ns + _AFTER_NS < started_ns
    return call.asked_ns <= started_ns + _BEFORE_NS and not is_over


def _about(store: HistoryStore, session_id: str, call: ShellCall) -> Detail:
    out: Detail = {"tool": {"name": "Bash", "call_id": call.call_id}}
    if call.model:
        out["model"] = call.model
    if call.subagent:
        out["subagent"] = {"id": call.subagent, "type": call.subagent_type or None}
    prompt = prompts.by_agent_id(store.ledger, session_id, call.prompt)
    if prompt is not None:
        out[PROMPT_ID] = prompt.prompt_id
    return out


def _key(call: ShellCall) -> CallKey:
    return call.subagent, call.call_id


def _started_ns(entry: Entry) -> int:
    return entry.ts_ns - (entry.duration_ms or 0) * 1_000_000


def _call_id(entry: Entry) -> str:
    return _field(entry, "tool", "call_id")


def _subagent_id(entry: Entry) -> str:
    return _field(entry, "subagent", "id")


def _field(entry: Entry, name: str, part: str) -> str:
    found = entry.detail.get(name)
    return str(found.get(part) or "") if isinstance(found, dict) else ""
