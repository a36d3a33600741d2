"""Claude Code's hooks (2.1.325).

Its shell commands run in a world, by the shell prefix: only its edit tools are reported here. They
report the original file, so that an outside edit made right before is known exactly.
"""

from __future__ import annotations

from functools import partial

from substrate.coding_agents.hook_events import EventKind, FileEdit, HookEvent
from substrate.coding_agents.hook_payloads.fields import Payload, content, mapping, text
from substrate.model import Content, ReportedEdit, replaced

_AGENT = "claude-code"
_EDIT_TOOLS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_KINDS = {
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
    "UserPromptSubmit": EventKind.PROMPT,
    "Stop": EventKind.PROMPT_END,
    "SubagentStart": EventKind.SESSION_START,
    "PreToolUse": EventKind.BEFORE_EDIT,
    "PostToolUse": EventKind.AFTER_EDIT,
    "PostToolUseFailure": EventKind.AFTER_EDIT,
}


def parse(payload: Payload) -> HookEvent | None:
    name = text(payload, "hook_event_name")
    kind = _KINDS.get(name)
    tool = text(payload, "tool_name")
    is_tool = kind in (EventKind.BEFORE_EDIT, EventKind.AFTER_EDIT)
    if kind is None or (is_tool and tool not in _EDIT_TOOLS):
        return None
    return HookEvent(
        _AGENT,
        kind,
        text(payload, "session_id"),
        text(payload, "cwd"),
        prompt=text(payload, "prompt_id"),
        text=text(payload, "prompt"),
        model=text(payload, "model"),
        subagent=text(payload, "agent_id"),
        subagent_type=text(payload, "agent_type"),
        tool=tool,
        call_id=text(payload, "tool_use_id"),
        edits=_edits(payload, tool, is_over=name == "PostToolUse") if is_tool else (),
        failed=name == "PostToolUseFailure",
        transcript=text(payload, "transcript_path"),
    )


def _edits(payload: Payload, tool: str, *, is_over: bool) -> tuple[FileEdit, ...]:
    wanted = mapping(payload, "tool_input")
    path = text(wanted, "file_path", "notebook_path")
    if not path:
        return ()
    if not is_over:
        return (FileEdit(path),)
    answer = mapping(payload, "tool_response")
    if tool == "Write":
        return (FileEdit(path, _written(wanted, answer)),)
    if tool == "NotebookEdit":
        known = ReportedEdit(
            content(answer.get("original_file")), content(answer.get("updated_file"))
        )
        return (FileEdit(path, known),)
    return (FileEdit(path, _edited(wanted, answer)),)


def _written(wanted: Payload, answer: Payload) -> ReportedEdit:
    before = content(answer.get("originalFile"))
    if before is None and answer.get("type") == "create":
        before = Content(None)
    if answer.get("userModified") is True:  # the answer has what the user made of it
        return ReportedEdit(before, content(answer.get("content")))
    return ReportedEdit(before, content(answer.get("content")) or content(wanted.get("content")))


def _edited(wanted: Payload, answer: Payload) -> ReportedEdit:
    before = content(answer.get("originalFile"))
    if answer.get("userModified") is True:
        return ReportedEdit(before)
    edits = wanted.get("edits")
    steps = edits if isinstance(edits, list) else [{**wanted, **_as_used(answer)}]
    return ReportedEdit(before, rewrite=partial(_rewritten, tuple(steps)))


def _as_used(answer: Payload) -> Payload:
    """The texts that the tool used: it forgives, for example, other quotation marks."""
    if not isinstance(answer.get("oldString"), str) or not isinstance(answer.get("newString"), str):
        return {}
    return {"old_string": answer["oldString"], "new_string": answer["newString"]}


def _rewritten(steps: tuple[object, ...], data: bytes | None) -> bytes | None:
    for step in steps:
        if isinstance(step, dict):
            old, new = step.get("old_string"), step.get("new_string")
            data = replaced(
                data,
                old if isinstance(old, str) else "",
                new if isinstance(new, str) else "",
                everywhere=step.get("replace_all") is True,
            )
    return data
