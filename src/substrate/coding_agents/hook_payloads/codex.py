"""Codex's hooks (0.166.0): nearly Claude Code's format, with `apply_patch` as the edit tool.

A patch names its files relative to the working directory, and reports no original file.
"""

from __future__ import annotations

from functools import partial

from substrate.coding_agents.hook_events import EventKind, FileEdit, HookEvent
from substrate.coding_agents.hook_payloads.fields import Payload, mapping, text
from substrate.model import CannotEditError, PatchError, ReportedEdit, patch_changes, patch_parts

_AGENT = "codex"
_EDIT_TOOL = "apply_patch"
_SHELL_TOOLS = frozenset({"Bash", "shell", "exec_command", "local_shell", "unified_exec"})
_KINDS = {
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
    "UserPromptSubmit": EventKind.PROMPT,
    "Stop": EventKind.PROMPT_END,
    "PreToolUse": EventKind.BEFORE_EDIT,
    "PostToolUse": EventKind.AFTER_EDIT,
    "PostToolUseFailure": EventKind.AFTER_EDIT,
}
_OF_SHELL = {
    EventKind.BEFORE_EDIT: EventKind.BEFORE_SHELL,
    EventKind.AFTER_EDIT: EventKind.AFTER_SHELL,
}


def parse(payload: Payload) -> HookEvent | None:
    name = text(payload, "hook_event_name")
    kind, tool = _KINDS.get(name), text(payload, "tool_name")
    wanted = mapping(payload, "tool_input")
    patch = command = ""
    if kind in _OF_SHELL:
        if tool in _SHELL_TOOLS:
            kind = _OF_SHELL[kind]
            command = _command(wanted)
        elif tool == _EDIT_TOOL:
            patch = text(wanted, "command", "input", "patch")
        else:
            return None
    if kind is None:
        return None
    return HookEvent(
        _AGENT,
        kind,
        text(payload, "session_id"),
        text(payload, "cwd"),
        prompt=text(payload, "turn_id", "prompt_id"),
        text=text(payload, "prompt"),
        model=text(payload, "model"),
        subagent=text(payload, "agent_id"),
        subagent_type=text(payload, "agent_type"),
        tool=tool,
        call_id=text(payload, "tool_use_id"),
        command=command,
        edits=edits_of(patch) if patch else (),
        failed=name == "PostToolUseFailure",
    )


def _command(wanted: Payload) -> str:
    value = wanted.get("command", wanted.get("cmd"))
    if isinstance(value, list):
        import shlex

        return shlex.join(str(word) for word in value)
    return value if isinstance(value, str) else ""


def edits_of(patch: str) -> tuple[FileEdit, ...]:
    """The files that a patch changes, each with its part of it."""
    edits: dict[str, FileEdit] = {}
    for path, part in patch_parts(patch).items():
        edits[path] = FileEdit(path, ReportedEdit(rewrite=partial(_patched, part.text, path, path)))
        if part.target and part.target != path:
            moved = ReportedEdit(rewrite=partial(_patched, part.text, path, part.target))
            edits[part.target] = FileEdit(part.target, moved, moved_from=path)
    return tuple(edits.values())


def _patched(patch: str, path: str, wanted: str, data: bytes | None) -> bytes | None:
    """What `wanted` is after a patch of `path`, which had the content `data`."""

    def read(named: str) -> str:
        if named != path or data is None:
            raise PatchError(f"another file: {named}")
        return data.decode("utf-8", "surrogateescape")

    try:
        found = dict(patch_changes(patch, read))
    except PatchError as error:
        raise CannotEditError(str(error)) from error
    if wanted not in found:
        raise CannotEditError(f"the patch does not say what {wanted} becomes")
    after = found[wanted]
    return None if after is None else after.encode("utf-8", "surrogateescape")
