"""The reports of our plugin for opencode: `coding_agents/opencode.py` has their form.

Written after opencode's documentation. `tool.execute.after` was reported to be missing in some
versions; what a call changed is then recorded as an edit outside.
"""

from __future__ import annotations

from functools import partial

from substrate.coding_agents.hook_events import EventKind, FileEdit, HookEvent
from substrate.coding_agents.hook_payloads.fields import Payload, content, mapping, text
from substrate.model import ReportedEdit, replaced

_AGENT = "opencode"
_KINDS = {
    "session.created": EventKind.SESSION_START,
    "session.idle": EventKind.PROMPT_END,
    "chat.message": EventKind.PROMPT,
    "tool.execute.before": EventKind.BEFORE_EDIT,
    "tool.execute.after": EventKind.AFTER_EDIT,
}
_OF_SHELL = {
    EventKind.BEFORE_EDIT: EventKind.BEFORE_SHELL,
    EventKind.AFTER_EDIT: EventKind.AFTER_SHELL,
}


def parse(payload: Payload) -> HookEvent | None:
    kind, tool = _KINDS.get(text(payload, "hook_event_name")), text(payload, "tool")
    wanted, about = mapping(payload, "tool_input"), mapping(payload, "properties")
    edits: tuple[FileEdit, ...] = ()
    if kind in _OF_SHELL:
        path = text(wanted, "filePath")
        if tool == "bash":
            kind = _OF_SHELL[kind]
        elif tool in ("edit", "write") and path:
            is_over = kind is EventKind.AFTER_EDIT
            edits = (FileEdit(path, _reported(tool, wanted) if is_over else ReportedEdit()),)
        else:
            return None
    if kind is None:
        return None
    session = text(payload, "sessionID") or text(about, "sessionID")
    return HookEvent(
        _AGENT,
        kind,
        session or text(mapping(about, "info"), "id"),
        text(payload, "cwd"),
        prompt=text(payload, "messageID"),
        text=text(payload, "text"),
        tool=tool,
        call_id=text(payload, "callID"),
        command=text(wanted, "command"),
        edits=edits,
    )


def _reported(tool: str, wanted: Payload) -> ReportedEdit:
    if tool == "write":
        return ReportedEdit(after=content(wanted.get("content")))
    return ReportedEdit(rewrite=partial(_edited, wanted))


def _edited(wanted: Payload, data: bytes | None) -> bytes | None:
    return replaced(
        data, text(wanted, "oldString"), text(wanted, "newString"),
        everywhere=wanted.get("replaceAll") is True,
    )  # fmt: skip
