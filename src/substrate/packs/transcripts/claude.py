"""Claude Code's transcript (``~/.claude/projects/<project>/<session>.jsonl``) → execution log.

    user       a prompt (text), or the results of tool calls (`tool_result` blocks)
    assistant  one block per record: text, thinking or `tool_use`
    system     `compact_boundary`; the rest is internal to the program
    others     counted as left out

A subagent's records are among the others, marked `isSidechain`; since 2.1 they are in a file beside
the transcript, ``<session>/subagents/agent-<id>.jsonl``, and are read where its result is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from substrate.packs.transcripts.transcript_lines import (
    Account,
    Attached,
    Json,
    Transcript,
    integer,
    items,
    joined_text,
    mapping,
    records,
    require_any,
    string,
)
from substrate.packs.transcripts.transcript_log import Call, LogBuilder

_EXIT = re.compile(r"\A(?:Error: )?Exit code (\d+)(?:\n|\Z)")
#: Claude Code's own words around a command's output.
_CWD_RESET = re.compile(r"(?:\A|\n)Shell cwd was reset to [^\n]+\Z")
_TIMED_OUT = re.compile(r"(?:\A|\n)Command timed out after [^\n]+(?=\n|\Z)")
_SAVED = re.compile(r"\A<persisted-output>\nOutput too large \([^\n]*saved to: ([^\n]+)\n")
_DROPPED = re.compile(r"\A<(?:persisted|truncated)-output>\n")
#: How the end of a background command is reported.
_TASK = re.compile(
    r"<tool-use-id>([^<]+)</tool-use-id>.*<status>\w+</status>"
    r".*\(exit code (\d+)\)</summary>",
    re.DOTALL,
)
_AGENT_ID = re.compile(r"\w+")
#: The status of a command that Claude Code ended because of its timeout, and the default timeout.
_ENDED, _TIMEOUT_MS = 143, 120_000


def read_claude(lines: Iterable[bytes], attached: Attached) -> Transcript:
    """Read a Claude Code transcript; `UsageError` if it is not one."""
    account = Account()
    reader = _Reader(account, attached)
    for record in records(lines, account):
        reader.take(record)
    reader.finish()
    require_any(account, "Claude Code")
    version = reader.version or "unknown"
    return Transcript(reader.build.log(f"claude-code {version}"), account.report())


class _Reader:
    def __init__(self, account: Account, attached: Attached) -> None:
        self.build = LogBuilder()
        self.version = ""
        self._account = account
        self._attached = attached
        #: Commands that went on in the background: id of the call -> step.
        self._in_background: dict[str, int] = {}
        self._refused = 0
        self._without_output = 0
        self._seen: set[str] = set()
        #: Calls that wait for their result: id -> step.
        self._open: dict[str, int] = {}

    def take(self, record: Json) -> None:
        kind = string(record.get("type")) or "(no type)"
        uuid = string(record.get("uuid"))
        if uuid and uuid in self._seen:  # a resumed session may repeat old records
            self._account.left_out["repeated"] += 1
            return
        self._seen.add(uuid)
        self._note_place(record)
        if kind == "assistant":
            self._assistant(record)
        elif kind == "user":
            self._user(record)
        else:
            self._task_ended(record)
            subtype = string(record.get("subtype"))
            self._account.left_out[f"{kind}/{subtype}" if subtype else kind] += 1

    def finish(self) -> None:
        if self._open:
            count = len(self._open)
            self._account.notes.append(
                f"{count} tool call{'s' if count > 1 else ''} without a result: kept, not replayed"
            )
        if self._in_background:
            self._account.notes.append(
                f"commands that went on in the background and whose end is not in the transcript,"
                f" kept and not replayed: {len(self._in_background)}"
            )
        if self._refused:
            self._account.notes.append(
                f"commands that were refused or interrupted, kept and not replayed: {self._refused}"
            )
        if self._without_output:
            self._account.notes.append(
                f"commands whose long output is not in the transcript nor beside it: "
                f"{self._without_output}; a replay compares their exit status"
            )

    def _note_place(self, record: Json) -> None:
        self.version = string(record.get("version")) or self.version
        if self.version:
            self.build.versions["claude-code"] = self.version
        if not self.build.root:
            self.build.root = string(record.get("cwd"))
        session = string(record.get("sessionId"))
        if session:
            self.build.parameters.setdefault("session_id", session)

    # -- assistant ------------------------------------------------------------------------------

    def _assistant(self, record: Json) -> None:
        message = mapping(record.get("message"))
        self.build.saw_model(string(message.get("model")))
        content = message.get("content")
        blocks = items(content) or [{"type": "text", "text": content}]
        for block in map(mapping, blocks):
            self._block(block, record)

    def _block(self, block: Json, record: Json) -> None:
        kind, when = string(block.get("type")), string(record.get("timestamp"))
        is_side = record.get("isSidechain") is True
        side = "subagent_" if is_side else ""
        if kind == "text":
            self.build.said(side + "message", "assistant", string(block.get("text")), when)
            self._account.kept[side + "message"] += 1
        elif kind == "thinking":
            self.build.said(side + "reasoning", "thinking", string(block.get("thinking")), when)
            self._account.kept[side + "reasoning"] += 1
        elif kind in ("tool_use", "server_tool_use"):
            call = Call(
                string(block.get("name")) or "(unnamed)", mapping(block.get("input")), when,
                string(record.get("cwd")), is_side,
            )  # fmt: skip
            self._open[string(block.get("id"))] = self.build.call(call)
            self._account.kept[side + "tool call"] += 1
        else:
            self._account.left_out[f"assistant/{kind or '(no type)'}"] += 1

    # -- user -----------------------------------------------------------------------------------

    def _user(self, record: Json) -> None:
        content = mapping(record.get("message")).get("content")
        texts = [content] if isinstance(content, str) else []
        for block in map(mapping, items(content)):
            kind = string(block.get("type"))
            if kind == "tool_result":
                self._result(block, record)
            elif kind == "text":
                texts.append(string(block.get("text")))
            else:
                self._account.left_out[f"user/{kind or '(no type)'}"] += 1
        if texts:
            self._prompt("\n".join(texts), record)

    def _prompt(self, text: str, record: Json) -> None:
        when = string(record.get("timestamp"))
        if record.get("isCompactSummary") is True:
            self.build.said("compaction", "compact", text, when)
            self._account.kept["compaction"] += 1
        elif record.get("isSidechain") is True:
            # Written by the model that started the subagent, not by a user.
            self.build.said("subagent_prompt", "assistant", text, when)
            self._account.kept["subagent prompt"] += 1
        else:
            self.build.prompt("user", text)
            self._account.kept["prompt"] += 1

    def _result(self, block: Json, record: Json) -> None:
        index = self._open.pop(string(block.get("tool_use_id")), None)
        if index is None:
            self._account.left_out["result of an unknown call"] += 1
            return
        text = joined_text(block.get("content"))
        failed = block.get("is_error") is True
        said = mapping(record.get("toolUseResult"))
        if said.get("status") == "completed" and said.get("agentId"):
            self._subagent(string(said.get("agentId")))
        if str(self.build.steps[index]["tool"]) == "Bash":
            self._shell_result(index, text, failed, said)
            if said.get("backgroundTaskId"):
                self._in_background[string(block.get("tool_use_id"))] = index
        else:
            self.build.result(index, text, failed=failed)
        self._account.kept["result"] += 1
        if not failed:
            self._files(self.build.steps[index], said)

    def _shell_result(self, index: int, text: str, failed: bool, said: Json) -> None:
        status = _EXIT.match(text) if failed else None
        # A failure without a status (interrupted, refused) has no exit status at all.
        exit_code = int(status[1]) if status else None if failed else 0
        if exit_code == _ENDED and _TIMED_OUT.search(text):
            asked = mapping(self.build.steps[index]["parameters"]).get("timeout")
            self.build.killed_after(index, integer(asked) or _TIMEOUT_MS)
            text = _TIMED_OUT.sub("", text, count=1)
        hint = string(said.get("staleReadFileStateHint"))
        if hint and text.endswith(hint):  # said to the model, not printed by the command
            text = text.removesuffix(hint).removesuffix("\n")
        output = self._whole_output(_CWD_RESET.sub("", text), said)
        self.build.result(index, output, failed=failed, exit_code=exit_code)
        if said.get("backgroundTaskId"):
            self.build.not_replayed(index)
        elif exit_code is None:
            self.build.not_replayed(index)
            self._refused += 1

    def _task_ended(self, record: Json) -> None:
        """A background command has ended: a replay runs it to its end, whatever it prints."""
        found = _TASK.search(string(record.get("content")))
        index = self._in_background.pop(found[1], None) if found else None
        if found and index is not None:
            self.build.result(index, None, failed=False, exit_code=int(found[2]))

    def _subagent(self, agent_id: str) -> None:
        session = string(self.build.parameters.get("session_id"))
        if not _AGENT_ID.fullmatch(agent_id) or "/" in session:
            return
        text = self._attached(f"{session}/subagents/agent-{agent_id}.jsonl") or ""
        lines = text.encode("utf-8", "surrogateescape").splitlines()
        above, self._open = self._open, {}  # its calls may have the same ids
        for record in records(lines, Account()):
            self.take(record)
        self._open = above

    def _whole_output(self, text: str, said: Json) -> str | None:
        """The output, also if the transcript only has its beginning; None if it is lost."""
        saved = _SAVED.match(text)
        if not saved and not _DROPPED.match(text):
            return text
        path = string(said.get("persistedOutputPath")) or (saved[1] if saved else "")
        found = self._attached(path)
        self._without_output += found is None
        return found

    def _files(self, step: Json, said: Json) -> None:
        """What the structured result says about files: their content before and after."""
        tool, parameters = step["tool"], mapping(step["parameters"])
        path = string(parameters.get("file_path"))
        if tool == "Read":
            file = mapping(said.get("file"))
            whole = file.get("startLine") in (None, 1) and (
                file.get("numLines") == file.get("totalLines")
            )
            if whole and isinstance(file.get("content"), str):
                self.build.file_was(path, string(file.get("content")))
        elif tool in ("Write", "Edit", "MultiEdit"):
            before = said.get("originalFile")
            if isinstance(before, str):
                self.build.file_was(path, before)
            if tool == "Write":
                self.build.file_is(path, string(parameters.get("content")))
            elif isinstance(before, str):
                self.build.file_is(path, _edited(before, parameters))


def _edited(text: str, parameters: Json) -> str:
    for edit in map(mapping, items(parameters.get("edits")) or [parameters]):
        old, new = string(edit.get("old_string")), string(edit.get("new_string"))
        if not old:
            text = new
        else:
            text = text.replace(old, new, -1 if edit.get("replace_all") is True else 1)
    return text
