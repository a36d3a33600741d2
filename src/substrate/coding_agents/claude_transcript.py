"""The shell calls in Claude Code's transcripts (2.1.325), with their ids, models and sub-agents.

    ~/.claude/projects/<project>/<session>.jsonl                     the session's own calls
    ~/.claude/projects/<project>/<session>/subagents/agent-ID.jsonl  a sub-agent's, and its type
                                                  in agent-ID.meta.json

A call is an `assistant` record with a `tool_use` block; its result is a `user` record, which also
has the prompt's id. Other records, unknown fields and broken lines are ignored.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from substrate.coding_agents.hook_payloads import Payload, mapping, text

_SHELL_TOOL = "Bash"
#: Of a longer file only the end is read: the calls that are looked for are recent.
_MOST_BYTES = 32 << 20
#: How the result of a failed call begins if its command did run; a refused one has other words.
_DID_RUN = ("Exit code", "Error: Exit code", "Command timed out", "[Request interrupted")


class ShellCall(NamedTuple):
    call_id: str
    command: str
    asked_ns: int
    model: str = ""
    #: The agent's own id of the prompt.
    prompt: str = ""
    subagent: str = ""
    subagent_type: str = ""
    #: When the model got the result; None if the transcript has none.
    answered_ns: int | None = None


def shell_calls(transcript: Path, since_ns: int) -> list[ShellCall]:
    """The calls that the session and its sub-agents made since then and that ran, in order."""
    found = _calls(transcript, since_ns)
    try:
        beside = sorted((transcript.with_suffix("") / "subagents").glob("agent-*.jsonl"))
    except OSError:
        beside = []
    for path in beside:
        found += _calls(path, since_ns, _subagent_type(path))
    return sorted(found, key=lambda call: call.asked_ns)


def _subagent_type(path: Path) -> str:
    for record in _records(path.with_suffix(".meta.json"), 0):
        return text(record, "agentType")
    return ""


def _calls(path: Path, since_ns: int, subagent_type: str = "") -> list[ShellCall]:
    calls: dict[str, ShellCall] = {}
    for record in _records(path, since_ns):
        when_ns = _time_ns(record)
        if when_ns is None or when_ns < since_ns:
            continue
        for block in _blocks(record):
            call_id = text(block, "id", "tool_use_id")
            if block.get("type") == "tool_use" and block.get("name") == _SHELL_TOOL:
                calls[call_id] = ShellCall(
                    call_id, text(mapping(block, "input"), "command"), when_ns,
                    text(mapping(record, "message"), "model"), "",
                    text(record, "agentId"), subagent_type,
                )  # fmt: skip
            elif block.get("type") == "tool_result" and call_id in calls:
                if not _did_run(block):
                    del calls[call_id]
                    continue
                calls[call_id] = calls[call_id]._replace(
                    prompt=text(record, "promptId"), answered_ns=when_ns
                )
    return list(calls.values())


def _did_run(result: Payload) -> bool:
    said = result.get("content")
    if isinstance(said, list):
        said = "".join(text(one, "text") for one in said if isinstance(one, dict))
    return result.get("is_error") is not True or (
        isinstance(said, str) and said.startswith(_DID_RUN)
    )


def _blocks(record: Payload) -> Iterator[Payload]:
    content = mapping(record, "message").get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block


def _time_ns(record: Payload) -> int | None:
    try:
        return int(datetime.fromisoformat(text(record, "timestamp")).timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        return None


def _records(path: Path, since_ns: int) -> Iterator[Payload]:
    """The records at the file's end; none if it was not written since then."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_mtime_ns < since_ns:
            return
        with path.open("rb") as file:
            file.seek(max(0, found.st_size - _MOST_BYTES))
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            record = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record
