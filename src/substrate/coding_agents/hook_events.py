"""What a coding agent's hook reports, in one form for all agents.

The formats differ and change with versions: unknown events, fields and types are ignored, and
nothing here raises on what an agent sends. `hook_payloads` has one module per agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from substrate.coding_agents import files_before
from substrate.model import FileBefore, ReportedEdit

#: The agents whose hooks are understood, as `substrate hook AGENT` names them.
HOOKED_AGENTS = ("claude-code", "codex", "gemini-cli", "cursor", "opencode")
#: A longer report is not read: an edit tool reports whole files, but none is that long.
_MOST_BYTES = 64 << 20


#: Hands a text to the agent; returns False if the agent does not wait for it any more.
Say = Callable[[str], bool]


class EventKind(Enum):
    SESSION_START = "session start"
    SESSION_END = "session end"
    PROMPT = "prompt"
    PROMPT_END = "prompt end"
    BEFORE_EDIT = "before an edit"
    AFTER_EDIT = "after an edit"
    BEFORE_SHELL = "before a shell command"
    AFTER_SHELL = "after a shell command"


class FileEdit(NamedTuple):
    """One file that an edit tool changes; the path is absolute, or relative to the event's cwd."""

    path: str
    reported: ReportedEdit = ReportedEdit()
    #: The file that the tool moves here; its content is what `reported.rewrite` begins with.
    moved_from: str = ""


class HookEvent(NamedTuple):
    agent: str
    kind: EventKind
    #: The agent's own id of its session.
    session: str
    cwd: str
    #: The agent's own id of the prompt, and its text; empty if not reported.
    prompt: str = ""
    text: str = ""
    model: str = ""
    #: The sub-agent that acts, and what kind of sub-agent it is.
    subagent: str = ""
    subagent_type: str = ""
    tool: str = ""
    call_id: str = ""
    #: Of a shell tool.
    command: str = ""
    edits: tuple[FileEdit, ...] = ()
    #: The tool reports that it did not do what it was asked for.
    failed: bool = False
    #: Of an agent whose calls have no id: equal if the same report comes twice.
    report_id: str = ""
    #: The file in which the agent keeps the conversation; empty if it is not read.
    transcript: str = ""
    #: The event's name in the agent's own words.
    name: str = ""
    #: Of an event before a tool: files as they were when the hook began, by the names in `edits`
    #: or in the command.
    before: Mapping[str, FileBefore] = MappingProxyType({})


def read_event(agent: str, data: bytes) -> HookEvent | None:
    """The event in a hook's input; None if it is not one that Substrate records."""
    if len(data) > _MOST_BYTES:
        return None
    report, before = files_before.split(data)
    try:
        payload = json.loads(report.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    from substrate.coding_agents.hook_payloads import parse

    event = parse(agent, payload)
    return (
        event._replace(before=before, name=str(payload.get("hook_event_name")))
        if event is not None
        else None
    )


def hook_answer(event: HookEvent, *, message: str = "", context: str = "") -> str:
    """What a hook prints: a message for the user, and context for the model's next answer.

    Claude Code, Codex and Gemini CLI read the same fields.
    """
    answer: dict[str, object] = {}
    if message:
        answer["systemMessage"] = message
    if context:
        answer["hookSpecificOutput"] = {
            "hookEventName": event.name,
            "additionalContext": context,
        }
    return json.dumps(answer)
