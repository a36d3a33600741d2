"""Reports as the three coding agents' hooks write them to stdin (2026-11: Claude Code 2.1.325,
Codex 0.166.0, Gemini CLI 0.61.0), with the fields that their real reports have."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Report = dict[str, Any]


class Claude:
    """One session of Claude Code; each method makes one report."""

    agent = "claude-code"

    def __init__(self, root: Path, session: str = "c3560308-295f-4ed9-890e-35520c252ecf") -> None:
        self.root, self.session, self.asked = root, session, 0
        self.variables = {"CLAUDE_CODE_SESSION_ID": session, "CLAUDECODE": "1"}

    def report(self, name: str, **more: object) -> Report:
        return {
            "session_id": self.session,
            "transcript_path": f"/home/dev/.claude/projects/-p/{self.session}.jsonl",
            "cwd": str(self.root),
            "permission_mode": "default",
            "hook_event_name": name,
            "prompt_id": f"{self.session[:4]}-{self.asked}",
            **more,
        }

    def start(self, source: str = "startup") -> Report:
        return self.report("SessionStart", source=source, model="claude-sonnet-4-5")

    def prompt(self, text: str) -> Report:
        self.asked += 1
        return self.report("UserPromptSubmit", prompt=text)

    def stop(self) -> Report:
        return self.report("Stop", stop_hook_active=False)

    def end(self) -> Report:
        return self.report("SessionEnd", reason="exit")

    def before(self, tool: str, call: str, **wanted: object) -> Report:
        return self.report("PreToolUse", tool_name=tool, tool_use_id=call, tool_input=wanted)

    def edit_call(self, path: Path, call: str, old: str, new: str) -> Report:
        return self.before(
            "Edit", call, file_path=str(path), old_string=old, new_string=new, replace_all=False
        )

    def edit(
        self, path: Path, call: str, old: str, new: str, original: str, **more: object
    ) -> Report:
        return {
            **self.edit_call(path, call, old, new),
            "hook_event_name": "PostToolUse",
            "tool_response": {
                "filePath": str(path), "oldString": old, "newString": new,
                "originalFile": original, "userModified": False, "replaceAll": False,
                "structuredPatch": [],
            },
            "duration_ms": 4,
            **more,
        }  # fmt: skip

    def write(self, path: Path, call: str, content: str, original: str | None) -> Report:
        return {
            **self.before("Write", call, file_path=str(path), content=content),
            "hook_event_name": "PostToolUse",
            "tool_response": {
                "type": "create" if original is None else "update", "filePath": str(path),
                "content": content, "structuredPatch": [], "originalFile": original,
                "userModified": False,
            },
        }  # fmt: skip


class Transcript:
    """The file in which a session of Claude Code, or one of its sub-agents, keeps what it did."""

    def __init__(self, path: Path, prompt: str, subagent: str = "") -> None:
        self.path, self.prompt, self.subagent = path, prompt, subagent
        path.parent.mkdir(parents=True, exist_ok=True)

    def of_subagent(self, name: str, kind: str) -> Transcript:
        path = self.path.with_suffix("") / "subagents" / f"agent-{name}.jsonl"
        made = Transcript(path, self.prompt, name)
        path.with_suffix(".meta.json").write_text(json.dumps({"agentType": kind}))
        return made

    def asks(self, call: str, command: str, model: str = "claude-opus-5-5") -> None:
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
        self._add("assistant", {"role": "assistant", "model": model, "content": [block]})

    def gets(self, call: str, text: str = "", *, is_error: bool = False) -> None:
        block = {
            "type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error,
        }  # fmt: skip
        self._add("user", {"role": "user", "content": [block]}, promptId=self.prompt)

    def _add(self, kind: str, message: Report, **more: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {"type": kind, "timestamp": now, "message": message, **more}
        if self.subagent:
            record |= {"agentId": self.subagent, "isSidechain": True}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


class Codex:
    agent = "codex"

    def __init__(self, root: Path, session: str = "01a1e165-b462-7da1-92ec-921008cbf5f2") -> None:
        self.root, self.session, self.turn = root, session, 0

    def report(self, name: str, **more: object) -> Report:
        return {
            "session_id": self.session,
            "turn_id": f"turn-{self.turn}",
            "transcript_path": "/home/dev/.codex/sessions/rollout.jsonl",
            "cwd": str(self.root),
            "hook_event_name": name,
            "model": "gpt-5-codex",
            **more,
        }

    def prompt(self, text: str) -> Report:
        self.turn += 1
        return self.report("UserPromptSubmit", prompt=text)

    def patch(self, name: str, call: str, patch: str) -> Report:
        return self.report(
            name, tool_name="apply_patch", tool_use_id=call, tool_input={"command": patch}
        )

    def shell(self, name: str, call: str, command: str) -> Report:
        return self.report(
            name, tool_name="Bash", tool_use_id=call, tool_input={"command": command}
        )


class Gemini:
    """Its calls have no id."""

    agent = "gemini-cli"

    def __init__(self, root: Path, session: str = "b0b9b1a2") -> None:
        self.root, self.session = root, session

    def report(self, name: str, **more: object) -> Report:
        return {
            "session_id": self.session,
            "transcript_path": "/home/dev/.gemini/tmp/p/chats/session.jsonl",
            "cwd": str(self.root),
            "hook_event_name": name,
            "timestamp": "2026-11-15T22:51:29.021Z",
            **more,
        }

    def replace(self, path: Path, old: str, new: str, original: str | None = None) -> Report:
        shown = {"originalContent": original, "newContent": (original or "").replace(old, new, 1)}
        return self.report(
            "AfterTool", tool_name="replace",
            tool_input={"file_path": str(path), "old_string": old, "new_string": new},
            tool_response={
                "llmContent": f"Successfully modified file: {path}",
                "returnDisplay": shown if original is not None else "",
            },
        )  # fmt: skip

    def write(self, path: Path, content: str, name: str = "AfterTool") -> Report:
        return self.report(
            name, tool_name="write_file", tool_input={"file_path": str(path), "content": content},
            tool_response={"llmContent": "Successfully created and wrote to new file."},
        )  # fmt: skip

    def shell(self, name: str, command: str) -> Report:
        return self.report(name, tool_name="run_shell_command", tool_input={"command": command})


def encoded(report: Report) -> bytes:
    return json.dumps(report).encode()
