"""Gemini CLI's hooks (0.61.0). Its calls have no id: they are paired in order."""

from __future__ import annotations

from functools import partial

from substrate.coding_agents.hook_events import EventKind, FileEdit, HookEvent
from substrate.coding_agents.hook_payloads.fields import Payload, content, mapping, text
from substrate.model import Content, ReportedEdit, replaced

_AGENT = "gemini-cli"
_EDIT_TOOLS = frozenset({"write_file", "replace"})
_SHELL_TOOL = "run_shell_command"
_KINDS = {
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
    "BeforeAgent": EventKind.PROMPT,
    "AfterAgent": EventKind.PROMPT_END,
    "BeforeTool": EventKind.BEFORE_EDIT,
    "AfterTool": EventKind.AFTER_EDIT,
}
_OF_SHELL = {
    EventKind.BEFORE_EDIT: EventKind.BEFORE_SHELL,
    EventKind.AFTER_EDIT: EventKind.AFTER_SHELL,
}


def parse(payload: Payload) -> HookEvent | None:
    kind = _KINDS.get(text(payload, "hook_event_name"))
    tool = text(payload, "tool_name")
    wanted, answer = mapping(payload, "tool_input"), mapping(payload, "tool_response")
    edits: tuple[FileEdit, ...] = ()
    if kind in _OF_SHELL:
        if tool == _SHELL_TOOL:
            kind = _OF_SHELL[kind]
        elif tool in _EDIT_TOOLS and text(wanted, "file_path"):
            is_over = kind is EventKind.AFTER_EDIT
            edits = (
                FileEdit(
                    text(wanted, "file_path"),
                    _reported(tool, wanted, answer) if is_over else ReportedEdit(),
                ),
            )
        else:
            return None
    if kind is None:
        return None
    return HookEvent(
        _AGENT,
        kind,
        text(payload, "session_id"),
        text(payload, "cwd"),
        text=text(payload, "prompt"),
        model=text(payload, "model") or text(mapping(payload, "llm_request"), "model"),
        tool=tool,
        call_id=text(payload, "tool_use_id", "tool_call_id"),
        command=text(wanted, "command"),
        edits=edits,
        failed=bool(answer.get("error")),
        report_id=_report_id(payload),
    )


def _report_id(payload: Payload) -> str:
    """The same for a report that two settings files make the agent send twice."""
    if not text(payload, "timestamp"):
        return ""
    import hashlib
    import json

    return "r-" + hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:24]


def _reported(tool: str, wanted: Payload, answer: Payload) -> ReportedEdit:
    """The tool's display has the file before and after; without it, the input says what it did."""
    for name in ("returnDisplay", "resultDisplay"):
        shown = mapping(answer, name)
        after = content(shown.get("newContent"))
        if after is not None:
            is_new = shown.get("isNewFile") is True
            before = Content(None) if is_new else content(shown.get("originalContent"))
            return ReportedEdit(before, after)
    if tool == "write_file":
        return ReportedEdit(after=content(wanted.get("content")))
    return ReportedEdit(rewrite=partial(_replaced, wanted))


def _replaced(wanted: Payload, data: bytes | None) -> bytes | None:
    expected = wanted.get("expected_replacements")
    everywhere = wanted.get("allow_multiple") is True or (
        isinstance(expected, int) and expected > 1
    )
    return replaced(
        data, text(wanted, "old_string"), text(wanted, "new_string"), everywhere=everywhere
    )
