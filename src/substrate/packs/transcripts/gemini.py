"""Gemini CLI's session (``~/.gemini/tmp/<project>/chats/session-….jsonl``) → execution log.

A later line with the same `id` replaces the earlier one; ``{"$set": …}`` patches the session.
Older versions wrote one JSON document with `messages` instead.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections.abc import Iterable

from substrate.packs.transcripts.transcript_lines import (
    Account,
    Json,
    Transcript,
    items,
    joined_text,
    mapping,
    records,
    require_any,
    string,
)
from substrate.packs.transcripts.transcript_log import Call, LogBuilder, common_root

_SHELL = "run_shell_command"
#: What the shell tool wraps around a command's output, for the model.
_WRAPPED = re.compile(
    r"\A(?:<untrusted_context>\n)?(?:Command: .*\n)?(?:Directory: .*\n)?Output: (?P<output>.*?)"
    r"(?:\nError: .*?)?(?:\nExit Code: (?P<exit>-?\d+))?(?:\nSignal: .*?)?"
    r"(?:\nBackground PIDs: .*?)?(?:\nProcess Group PGID: \d+)?(?:\n</untrusted_context>)?\s*\Z",
    re.DOTALL,
)


def read_gemini(lines: Iterable[bytes]) -> Transcript:
    """Read a Gemini session; `UsageError` if it is not one."""
    account = Account()
    session: Json = {}
    messages: dict[str, Json] = {}
    data = list(lines)
    for record in _whole_document(data, account) or records(data, account):
        _apply(record, session, messages, account)
    builder = LogBuilder()
    if session.get("sessionId"):
        builder.parameters["session_id"] = session["sessionId"]
    builder.root = _root(session, list(messages.values()))
    for message in messages.values():
        _take(message, builder, account)
    require_any(account, "Gemini")
    return Transcript(builder.log("gemini-cli"), account.report())


def _whole_document(data: list[bytes], account: Account) -> list[Json]:
    """The session as one JSON document, as older versions wrote it; else an empty list."""
    try:
        found = json.loads(b"".join(data))
    except (ValueError, RecursionError):
        return []
    document = mapping(found)
    if "messages" not in document:
        return []
    account.lines = len(data)
    return [document]


def _apply(record: Json, session: Json, messages: dict[str, Json], account: Account) -> None:
    patch = mapping(record.get("$set")) if "$set" in record else record
    if "type" in record and string(record.get("id")):
        messages[string(record["id"])] = record
        return
    if "$set" not in record and "sessionId" not in record:
        account.left_out["(unknown)"] += 1
        return
    for message in map(mapping, items(patch.get("messages"))):
        messages[string(message.get("id"))] = message
    session |= {name: value for name, value in patch.items() if name != "messages"}
    account.kept["session"] += 1


def _root(session: Json, messages: list[Json]) -> str:
    """The working directory: the one whose hash the session has, or the files' common parent."""
    paths = [
        path
        for message in messages
        for call in map(mapping, items(message.get("toolCalls")))
        for path in map(string, mapping(call.get("args")).values())
        if path.startswith("/") and "\n" not in path
    ]
    wanted = session.get("projectHash")
    for path in paths:
        above = os.path.dirname(os.path.normpath(path))
        while True:
            if hashlib.sha256(above.encode("utf-8", "surrogatepass")).hexdigest() == wanted:
                return above
            if above == os.path.dirname(above):
                break
            above = os.path.dirname(above)
    return common_root(paths)


def _take(message: Json, builder: LogBuilder, account: Account) -> None:
    kind, when = string(message.get("type")), string(message.get("timestamp"))
    text = joined_text(message.get("content"))
    if kind == "user":
        blocks = [mapping(block) for block in items(message.get("content"))]
        if blocks and all("functionResponse" in block for block in blocks):
            account.left_out["function response (its call has it)"] += 1
            return
        builder.prompt("user", text)
        account.kept["prompt"] += 1
    elif kind == "gemini":
        builder.saw_model(string(message.get("model")))
        for thought in map(mapping, items(message.get("thoughts"))):
            said = "\n".join(filter(None, map(string, thought.values())))
            builder.said("reasoning", "thinking", said, when)
            account.kept["reasoning"] += 1
        if text:
            builder.said("message", "assistant", text, when)
            account.kept["message"] += 1
        for call in map(mapping, items(message.get("toolCalls"))):
            _call(call, builder, account, when)
    else:
        account.left_out[kind or "(no type)"] += 1


def _call(call: Json, builder: LogBuilder, account: Account, when: str) -> None:
    tool, args = string(call.get("name")) or "(unnamed)", mapping(call.get("args"))
    cwd = builder.root if tool == _SHELL else ""
    index = builder.call(Call(tool, args, string(call.get("timestamp")) or when, cwd))
    account.kept["tool call"] += 1
    answers = [
        mapping(mapping(mapping(part).get("functionResponse")).get("response"))
        for part in items(call.get("result"))
    ]
    if not answers:
        account.notes.append(f"the call of {tool} at step {index} has no result")
        return
    text = "\n".join(string(a.get("output")) or string(a.get("error")) for a in answers)
    failed = call.get("status") not in (None, "success") or any("error" in a for a in answers)
    exit_code = None
    if tool == _SHELL and (wrapped := _WRAPPED.match(text)):
        text = "" if wrapped["output"] == "(empty)" else wrapped["output"]
        exit_code = int(wrapped["exit"] or 0)
    builder.result(index, text, failed=failed, exit_code=exit_code)
    if tool == _SHELL and failed and exit_code is None:
        builder.not_replayed(index)  # a policy or the user refused it: it never ran
    account.kept["result"] += 1
    shown = mapping(call.get("resultDisplay"))
    path = string(shown.get("filePath")) or string(args.get("file_path"))
    if not failed and path and isinstance(shown.get("newContent"), str):
        if shown.get("isNewFile") is not True:
            builder.file_was(path, string(shown.get("originalContent")))
        builder.file_is(path, string(shown.get("newContent")))
