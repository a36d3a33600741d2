"""Cursor's hooks (version 1), after its documentation. Its calls have no id: pair them in order.

An edit is reported when it is done, with the replaced texts and without the original file.
"""

from __future__ import annotations

from functools import partial

from substrate.coding_agents.hook_events import EventKind, FileEdit, HookEvent
from substrate.coding_agents.hook_payloads.fields import Payload, text
from substrate.model import ReportedEdit, replaced

_AGENT = "cursor"
_KINDS = {
    "sessionStart": EventKind.SESSION_START,
    "sessionEnd": EventKind.SESSION_END,
    "beforeSubmitPrompt": EventKind.PROMPT,
    "stop": EventKind.PROMPT_END,
    "beforeShellExecution": EventKind.BEFORE_SHELL,
    "afterShellExecution": EventKind.AFTER_SHELL,
    "afterFileEdit": EventKind.AFTER_EDIT,
}
_SHELL = frozenset({EventKind.BEFORE_SHELL, EventKind.AFTER_SHELL})


def parse(payload: Payload) -> HookEvent | None:
    kind = _KINDS.get(text(payload, "hook_event_name"))
    if kind is None:
        return None
    edits: tuple[FileEdit, ...] = ()
    if kind is EventKind.AFTER_EDIT:
        path = text(payload, "file_path")
        if not path:
            return None
        edits = (FileEdit(path, ReportedEdit(rewrite=partial(_edited, payload.get("edits")))),)
    return HookEvent(
        _AGENT,
        kind,
        text(payload, "conversation_id", "session_id"),
        text(payload, "cwd") or _root(payload),
        prompt=text(payload, "generation_id") if kind is not EventKind.SESSION_START else "",
        text=text(payload, "prompt"),
        model=text(payload, "model"),
        tool="Shell" if kind in _SHELL else "Edit" if edits else "",
        command=text(payload, "command") if kind in _SHELL else "",
        edits=edits,
    )


def _root(payload: Payload) -> str:
    roots = payload.get("workspace_roots")
    return str(roots[0]) if isinstance(roots, list) and roots else ""


def _edited(edits: object, data: bytes | None) -> bytes | None:
    for one in edits if isinstance(edits, list) else ():
        if isinstance(one, dict):
            old, new = text(one, "old_string"), text(one, "new_string")
            data = replaced(data, old, new, everywhere=False)
    return data
