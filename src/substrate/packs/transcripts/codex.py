"""Codex's rollout (``~/.codex/sessions/…/rollout-….jsonl``) → execution log.

Lines are ``{timestamp, type, payload}``. `response_item` is what was sent to and received from the
model; `event_msg` reports the same to the terminal. Only `event_msg` has a command's exit status
and its exact output: the model's copy has a heading with a random id and a wall time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from substrate.packs.transcripts.transcript_lines import (
    Account,
    Json,
    Transcript,
    integer,
    joined_text,
    mapping,
    parsed,
    records,
    require_any,
    string,
)
from substrate.packs.transcripts.transcript_log import Call, LogBuilder

_HEADING = re.compile(r"\A(?:Chunk ID: .*\n)?Wall time: .*\n", re.MULTILINE)
_EXITED = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.MULTILINE)
#: A rule or the user refused the command: it never ran.
_REFUSED = re.compile(
    r"\A(?:\w+ failed: CreateProcess\b|exec command rejected|.*\brejected by user)"
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_CALL_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read_codex(lines: Iterable[bytes]) -> Transcript:
    """Read a Codex rollout; `UsageError` if it is not one."""
    account = Account()
    reader = _Reader(account)
    for record in records(lines, account):
        reader.take(record)
    reader.finish()
    require_any(account, "Codex")
    return Transcript(reader.build.log(f"codex {reader.version or 'unknown'}"), account.report())


class _Reader:
    def __init__(self, account: Account) -> None:
        self.build = LogBuilder()
        self.version = ""
        self._account = account
        self._cwd = ""
        #: call id -> step, answered or not.
        self._steps: dict[str, int] = {}
        self._answered: set[str] = set()
        #: call id -> the executed command as reported to the terminal.
        self._executed: dict[str, Json] = {}
        self._changed: set[str] = set()

    def take(self, record: Json) -> None:
        kind, payload = string(record.get("type")), mapping(record.get("payload"))
        when = string(record.get("timestamp"))
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self.build.saw_model(string(payload.get("model")))
            self._cwd = string(payload.get("cwd")) or self._cwd
            self._account.kept["turn context"] += 1
        elif kind == "response_item":
            self._item(payload, when)
        elif kind == "compacted":
            self.build.said("compaction", "compact", string(payload.get("message")), when)
            self._account.kept["compaction"] += 1
        elif kind == "event_msg" and payload.get("type") == "item_completed":
            self._completed(mapping(payload.get("item")))
        else:
            sub = string(payload.get("type"))
            self._account.left_out[f"{kind or '(no type)'}{'/' + sub if sub else ''}"] += 1

    def finish(self) -> None:
        for call_id, item in self._executed.items():
            self._take_execution(call_id, item)
        silent = len(self._steps.keys() - self._answered)
        if silent:
            self._account.notes.append(
                f"{silent} tool call{'s' if silent > 1 else ''} without a result:"
                " kept, not replayed"
            )

    def _meta(self, payload: Json) -> None:
        self._cwd = self._cwd or string(payload.get("cwd"))
        self.build.root = self.build.root or string(payload.get("cwd"))
        self.version = string(payload.get("cli_version")) or self.version
        if self.version:
            self.build.versions["codex"] = self.version
        for name in ("id", "model_provider"):
            if payload.get(name):
                key = "session_id" if name == "id" else name
                self.build.parameters.setdefault(key, payload[name])
        told = payload.get("base_instructions") or payload.get("instructions")
        self.build.system_prompt = string(told) or string(mapping(told).get("text"))
        self._account.kept["session"] += 1

    # -- sent to and received from the model ----------------------------------------------------

    def _item(self, payload: Json, when: str) -> None:
        kind = string(payload.get("type"))
        if kind == "message":
            self._message(payload, when)
        elif kind == "reasoning":
            text = joined_text(payload.get("summary")) or joined_text(payload.get("content"))
            self.build.said("reasoning", "thinking", text, when)
            self._account.kept["reasoning"] += 1
        elif kind in _CALLS:
            self._call(kind, payload, when)
        elif kind in _CALL_OUTPUTS:
            self._output(payload)
        else:
            self._account.left_out[f"response_item/{kind or '(no type)'}"] += 1

    def _message(self, payload: Json, when: str) -> None:
        role, text = string(payload.get("role")), joined_text(payload.get("content"))
        if role == "assistant":
            self.build.said("message", "assistant", text, when)
            self._account.kept["message"] += 1
        else:
            self.build.prompt(role or "user", text)
            self._account.kept["prompt"] += 1

    def _call(self, kind: str, payload: Json, when: str) -> None:
        parameters: Json
        if kind == "custom_tool_call":
            parameters = {"input": string(payload.get("input"))}
        elif kind == "local_shell_call":
            parameters = mapping(payload.get("action"))
        else:
            said = parsed(payload.get("arguments"))
            parameters = said if isinstance(said, dict) else {"arguments": payload.get("arguments")}
        name = string(payload.get("name")) or kind
        call_id = string(payload.get("call_id")) or string(payload.get("id"))
        self._steps[call_id] = self.build.call(Call(name, parameters, when, self._cwd))
        self._account.kept["tool call"] += 1

    def _output(self, payload: Json) -> None:
        call_id = string(payload.get("call_id"))
        index = self._steps.get(call_id)
        if index is None:
            self._account.left_out["result of an unknown call"] += 1
            return
        text, exit_code, ok = _told(payload.get("output"))
        tool = str(self.build.steps[index]["tool"])
        if tool == "apply_patch":
            ok = text.startswith("Success") or call_id in self._changed or exit_code == 0
        self.build.result(index, text, failed=ok is False, exit_code=exit_code)
        if exit_code is None and _REFUSED.match(text):
            self.build.not_replayed(index)
        self._answered.add(call_id)
        self._account.kept["result"] += 1

    # -- reported to the terminal ---------------------------------------------------------------

    def _completed(self, item: Json) -> None:
        kind, call_id = string(item.get("type")), string(item.get("id"))
        if kind == "CommandExecution":
            self._executed[call_id] = item
            self._account.kept["command execution"] += 1
        elif kind == "FileChange":
            if item.get("status") in (None, "completed"):
                self._changed.add(call_id)
            self._account.kept["file change"] += 1
        else:  # UserMessage, AgentMessage: the model's own records say the same
            self._account.left_out[f"event_msg/{kind or '(no type)'}"] += 1

    def _take_execution(self, call_id: str, item: Json) -> None:
        index = self._steps.get(call_id)
        if index is None:
            self._account.left_out["execution of an unknown call"] += 1
            return
        step = self.build.steps[index]
        cwd = string(item.get("cwd")).removeprefix("file://")
        if cwd:
            mapping(step["parameters"])["cwd"] = cwd
        output = item.get("aggregated_output")
        if isinstance(output, str):
            self.build.result(index, output, failed=False, exit_code=integer(item.get("exit_code")))
            self._answered.add(call_id)


def _told(output: object) -> tuple[str, int | None, bool | None]:
    """A result's text, exit status and success, from any of its past and present formats."""
    if isinstance(output, list):
        return joined_text(output), None, None
    said = mapping(output) or mapping(parsed(output))
    if "output" in said or "content" in said:
        status = integer(mapping(said.get("metadata")).get("exit_code"))
        ok = said.get("success")
        text = said.get("output", said.get("content"))
        return joined_text(text), status, ok if isinstance(ok, bool) else None
    text = string(output)
    status = None
    heading, marker, rest = text.partition("Output:\n")
    if marker and (_HEADING.match(text) or _EXITED.search(heading)):
        exited = _EXITED.search(heading)
        status = int(exited[1]) if exited else None
        text = rest
    return text, status, None
