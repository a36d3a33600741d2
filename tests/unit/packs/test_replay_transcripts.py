"""Agents' transcripts as execution logs: what is kept, what is left out, and that it is said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from substrate.errors import UsageError
from substrate.packs.transcripts.transcript_lines import Json, Transcript, attached_in
from substrate.packs.transcripts.transcript_to_pack import read_transcript

ROOT = "/home/ada/project"


def lines(*records: object) -> list[bytes]:
    return [json.dumps(record).encode() + b"\n" for record in records]


def read(agent: str, data: Iterable[bytes]) -> Transcript:
    return read_transcript(agent, data)


def steps_of(transcript: Transcript) -> list[Json]:
    steps = transcript.log["steps"]
    assert isinstance(steps, list)
    return steps


# -- Claude Code ----------------------------------------------------------------------------------


def claude(kind: str, content: object, **more: object) -> Json:
    message: Json = {"role": kind, "content": content}
    if kind == "assistant":
        message["model"] = "claude-test-1"
    record: Json = {"type": kind, "message": message, "cwd": ROOT, "sessionId": "s1"}
    return record | {"version": "2.0.0", "timestamp": "2026-01-02T03:04:05.678Z"} | more


def tool_use(name: str, call_id: str, **parameters: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": parameters}


def tool_result(call_id: str, content: object, **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


CLAUDE = lines(
    {"type": "queue-operation", "operation": "enqueue"},
    claude("user", "change the greeting"),
    claude("assistant", [{"type": "thinking", "thinking": "hm"}]),
    claude("assistant", [{"type": "text", "text": "I look first."}]),
    claude("assistant", [tool_use("Read", "t1", file_path=f"{ROOT}/b.txt")]),
    claude(
        "user",
        [tool_result("t1", "1\thello\n2\tworld\n3\t")],
        toolUseResult={
            "type": "text",
            "file": {"content": "hello\nworld\n", "numLines": 3, "startLine": 1, "totalLines": 3},
        },
    ),
    claude(
        "assistant",
        [tool_use("Edit", "t2", file_path=f"{ROOT}/b.txt", old_string="hello", new_string="bye")],
    ),
    claude(
        "user",
        [tool_result("t2", "updated")],
        toolUseResult={"originalFile": "hello\nworld\n"},
    ),
    claude("assistant", [tool_use("Bash", "t3", command="cat b.txt; exit 3")], cwd=f"{ROOT}/sub"),
    claude("user", [tool_result("t3", "Exit code 3\nbye\nworld", is_error=True)]),
    claude("assistant", [tool_use("WebFetch", "t4", url="https://example.invalid")]),
    claude("user", [tool_result("t4", [{"type": "text", "text": "a page"}])]),
    {"type": "brand-new-kind", "uuid": "u9"},
)


def test_a_claude_transcript_is_kept_whole() -> None:
    log, report = read("claude-code", CLAUDE)
    assert log["model"] == {"identifier": "claude-test-1", "parameters": {"session_id": "s1"}}
    assert log["prompts"] == [{"role": "user", "content": "change the greeting"}]
    steps = steps_of(Transcript(log, report))
    assert [(step["type"], step["tool"], step["deterministic"]) for step in steps] == [
        ("reasoning", "thinking", False),
        ("message", "assistant", False),
        ("tool_call", "Read", True),
        ("tool_call", "Edit", True),
        ("tool_call", "Bash", True),
        ("tool_call", "WebFetch", False),
    ]
    assert steps[4]["parameters"] == {"command": "cat b.txt; exit 3", "cwd": f"{ROOT}/sub"}
    assert steps[4]["result"] == {"exit": 3}
    assert steps[5]["output"] == "a page"
    assert [step["index"] for step in steps] == list(range(6))
    inputs = {item["name"]: item["content"] for item in log["inputs"]}  # type: ignore[attr-defined]
    assert inputs["b.txt"] == "hello\nworld\n"
    assert json.loads(inputs[".ctx/base.json"]) == {
        "version": 1,
        "root": ROOT,
        "entries": [{"path": "sub", "kind": "directory", "mode": "0755"}],
    }
    assert log["outputs"] == [{"name": "b.txt", "content": "bye\nworld\n"}]
    assert report.left_out == {"queue-operation": 1, "brand-new-kind": 1}
    assert report.kept == {
        "prompt": 1,
        "message": 1,
        "reasoning": 1,
        "tool call": 4,
        "result": 4,
    }


def test_the_same_transcript_gives_the_same_log() -> None:
    assert read("claude-code", CLAUDE) == read("claude-code", list(CLAUDE))


def test_a_torn_last_line_and_rubbish_are_reported_and_do_no_harm() -> None:
    torn = [*CLAUDE[:3], b"\xff\xfe rubbish\n", *CLAUDE[3:], b'{"type": "assist']
    log, report = read("claude-code", torn)
    assert log == read("claude-code", CLAUDE).log
    assert report.torn
    assert report.unreadable == (4,)
    assert report.lines == len(torn)


def test_subagents_and_compaction_keep_their_place() -> None:
    log, report = read(
        "claude-code",
        lines(
            claude("user", "go"),
            claude("user", "find it", isSidechain=True),
            claude("assistant", [tool_use("Bash", "a", command="ls")], isSidechain=True),
            claude("user", [tool_result("a", "x")], isSidechain=True),
            {"type": "system", "subtype": "compact_boundary"},
            claude("user", "so far: …", isCompactSummary=True),
            claude("user", "go on"),
        ),
    )
    assert log["prompts"] == [
        {"role": "user", "content": "go"},
        {"role": "user", "content": "go on"},
    ]
    kinds = [step["type"] for step in steps_of(Transcript(log, report))]
    assert kinds == ["subagent_prompt", "subagent_tool_call", "compaction"]
    assert report.kept["compaction"] == 1
    assert report.left_out == {"system/compact_boundary": 1}


def test_a_failed_edit_and_an_unanswered_call_are_kept_but_not_repeated() -> None:
    log, report = read(
        "claude-code",
        lines(
            claude("assistant", [tool_use("Edit", "a", file_path="x", old_string="1")]),
            claude("user", [tool_result("a", "no such text", is_error=True)]),
            claude("assistant", [tool_use("Bash", "b", command="sleep 9")]),
            claude("user", [tool_result("zzz", "whose?")]),
        ),
    )
    assert [step["deterministic"] for step in steps_of(Transcript(log, report))] == [False, False]
    assert report.notes == ("1 tool call without a result: kept, not replayed",)
    assert report.left_out == {"result of an unknown call": 1}


def test_a_repeated_record_counts_once() -> None:
    twice = claude("user", "hello", uuid="u1")
    log, report = read("claude-code", lines(twice, twice))
    assert len(log["prompts"]) == 1  # type: ignore[arg-type]
    assert report.left_out == {"repeated": 1}


def test_values_of_unexpected_shape_do_not_stop_it() -> None:
    log, _ = read(
        "claude-code",
        lines(
            {"type": 7},
            {"type": "assistant", "message": "text"},
            {"type": "user", "message": {"content": [3, None, {"type": "image"}]}},
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "input": []}]}},
            claude("user", "hi"),
        ),
    )
    assert log["prompts"] == [{"role": "user", "content": "hi"}]


def bash(call_id: str, result: str, *, error: bool = False, said: object = None) -> Json:
    block = tool_result(call_id, result, is_error=error)
    return claude("user", [block], toolUseResult=said if said is not None else result)


def one_bash(result: Json, attached: Path | None = None, **asked: object) -> tuple[Json, list[str]]:
    """The step of a session with one shell command, and the notes."""
    call = claude("assistant", [tool_use("Bash", "t1", command="make", **asked)])
    data = lines(claude("user", "build it"), call, result)
    found = read_transcript("claude-code", data, attached_in(attached))
    return steps_of(found)[0], list(found.report.notes)


def test_a_reset_directory_is_not_the_commands_output() -> None:
    step, _ = one_bash(bash("t1", f"/\nShell cwd was reset to {ROOT}", said={"stdout": "/"}))
    assert (step["output"], step["result"]) == ("/", {"exit": 0})
    step, _ = one_bash(bash("t1", f"Shell cwd was reset to {ROOT}", said={"stdout": ""}))
    assert step["output"] == ""


def test_a_command_that_went_on_in_the_background_is_not_replayed() -> None:
    said = {"stdout": "begin", "backgroundTaskId": "b1", "timedOutAfterMs": 1500}
    text = "begin\nCommand did not complete within its 2s timeout and was moved to the background"
    step, notes = one_bash(bash("t1", text, said=said))
    assert step["deterministic"] is False
    assert any("background" in note for note in notes)


def test_a_background_command_that_has_ended_is_replayed_to_its_end() -> None:
    said = {"stdout": "", "backgroundTaskId": "b1"}
    notice = (
        "<task-notification>\n<task-id>b1</task-id>\n<tool-use-id>t1</tool-use-id>\n"
        '<status>failed</status>\n<summary>Background command "make" failed (exit code 2)'
        "</summary>\n</task-notification>"
    )
    ended = {"type": "queue-operation", "operation": "enqueue", "content": notice}
    call = claude("assistant", [tool_use("Bash", "t1", command="make", run_in_background=True)])
    text = "Command running in background with ID: b1."
    found = read("claude-code", lines(call, bash("t1", text, said=said), ended))
    [step] = steps_of(found)
    assert (step["deterministic"], step["output"], step["result"]) == (True, None, {"exit": 2})
    assert found.report.notes == ()


def test_a_hint_for_the_model_is_not_the_commands_output() -> None:
    hint = "[This command modified 1 file you've previously read: a. Call Read before editing.]"
    for output, text in (("", hint), ("out", f"out\n{hint}")):
        step, _ = one_bash(bash("t1", text, said={"staleReadFileStateHint": hint}))
        assert step["output"] == output
    step, _ = one_bash(bash("t1", f"out\n{hint}", said={"stdout": hint}))
    assert step["output"] == f"out\n{hint}"


def test_a_refused_command_is_not_replayed() -> None:
    step, notes = one_bash(bash("t1", "Permission to use Bash has been denied.", error=True))
    assert step["deterministic"] is False
    assert any("refused" in note for note in notes)
    why = 'exec_command failed: CreateProcess { message: "Rejected(\\"rejected: policy\\")" }'
    asked = codex("response_item", type="function_call", name="exec_command", call_id="1",
                  arguments='{"cmd": "touch a"}')  # fmt: skip
    got = codex("response_item", type="function_call_output", call_id="1", output=why)
    assert steps_of(read("codex", lines(asked, got)))[0]["deterministic"] is False
    call = gemini_call("run_shell_command", {"command": "touch a"}, "", status="error")
    call["result"][0]["functionResponse"]["response"] = {"error": "denied by policy."}  # type: ignore[index]
    asked = {"id": "m2", "type": "gemini", "content": "", "toolCalls": [call]}
    assert steps_of(read("gemini", lines({"sessionId": "g"}, asked)))[0]["deterministic"] is False


def test_a_subagents_own_transcript_is_read_where_its_result_is(tmp_path: Path) -> None:
    side = lines(
        claude("user", "help", isSidechain=True),
        claude("assistant", [tool_use("Bash", "t1", command="make")], isSidechain=True),
        claude("user", [tool_result("t1", "made")], isSidechain=True),
    )
    path = tmp_path / "s1" / "subagents" / "agent-a1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(side))
    data = lines(
        claude("assistant", [tool_use("Agent", "t1", prompt="help")]),
        claude("assistant", [tool_use("Bash", "t2", command="ls")]),
        claude("user", [tool_result("t1", "done")],
               toolUseResult={"status": "completed", "agentId": "a1"}),
        claude("user", [tool_result("t2", "a")]),
    )  # fmt: skip
    found = read_transcript("claude-code", data, attached_in(tmp_path))
    steps = [(one["type"], one["tool"], one["output"]) for one in steps_of(found)]
    assert steps == [
        ("tool_call", "Agent", "done"), ("tool_call", "Bash", "a"),
        ("subagent_prompt", "assistant", "help"), ("subagent_tool_call", "Bash", "made"),
    ]  # fmt: skip


def test_a_command_that_the_timeout_ended_ends_so_in_a_replay() -> None:
    text = "Exit code 143\nCommand timed out after 2s\nbegin"
    step, _ = one_bash(bash("t1", text, error=True), timeout=1500)
    assert step["parameters"] == {
        "command": "make", "timeout": 1500, "cwd": ROOT, "killed_after_ms": 1500,
    }  # fmt: skip
    assert (step["output"], step["result"]) == ("Exit code 143\nbegin", {"exit": 143})
    assert step["deterministic"] is True
    step, _ = one_bash(bash("t1", text, error=True))
    assert step["parameters"]["killed_after_ms"] == 120_000  # type: ignore[index]


def too_large(path: Path) -> Json:
    text = (
        "<persisted-output>\nOutput too large (164.9KB). Full output saved to: "
        f"{path}\n\nPreview (first 2KB):\n1\n2\n</persisted-output>"
    )
    return bash("t1", text, said={"stdout": "1\n2", "persistedOutputPath": str(path)})


def test_a_long_output_is_read_from_the_agents_own_file(tmp_path: Path) -> None:
    saved = tmp_path / "s1" / "tool-results" / "b1.txt"
    saved.parent.mkdir(parents=True)
    whole = "".join(f"{number}\n" for number in range(30_000))
    saved.write_text(whole)
    step, notes = one_bash(too_large(saved), tmp_path)
    assert (step["output"], step["deterministic"], notes) == (whole, True, [])


def test_a_file_elsewhere_is_not_read_into_a_pack(tmp_path: Path) -> None:
    project = tmp_path / "projects"
    project.mkdir()
    private = tmp_path / "private.txt"
    private.write_text("secret\n")
    (project / "link").symlink_to(private)
    os.mkfifo(project / "pipe")
    for path in (private, project / ".." / "private.txt", project / "link", project / "pipe"):
        step, notes = one_bash(too_large(path), project)
        assert step["output"] is None
        assert any("long output" in note for note in notes)
    assert one_bash(too_large(project / "gone"))[0]["output"] is None


# -- Codex ----------------------------------------------------------------------------------------


def codex(kind: str, **payload: object) -> Json:
    return {"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload}


def message(role: str, text: str) -> Json:
    return codex("response_item", type="message", role=role, content=[{"text": text}])


CODEX = lines(
    codex("session_meta", id="c1", cwd=ROOT, cli_version="0.9", base_instructions="be good"),
    codex("turn_context", model="gpt-test", cwd=ROOT),
    message("user", "do it"),
    message("assistant", "I will."),
    codex("response_item", type="function_call", name="exec_command", call_id="1",
          arguments='{"cmd": "echo out; echo err >&2"}'),
    codex("event_msg", type="item_completed",
          item={"type": "CommandExecution", "id": "1", "cwd": f"file://{ROOT}/sub",
                "aggregated_output": "err\nout\n", "exit_code": 0}),
    codex("response_item", type="function_call_output", call_id="1",
          output="Chunk ID: ab12\nWall time: 0.1 seconds\nProcess exited with code 0\n"
                 "Output:\nerr\nout\n"),
    codex("response_item", type="custom_tool_call", name="apply_patch", call_id="2",
          input="*** Begin Patch\n*** Add File: c.txt\n+new\n*** End Patch"),
    codex("response_item", type="custom_tool_call_output", call_id="2",
          output='{"output": "Success. Updated", "metadata": {"exit_code": 0}}'),
    codex("response_item", type="custom_tool_call", name="apply_patch", call_id="3", input="x"),
    codex("response_item", type="custom_tool_call_output", call_id="3", output="unsupported"),
    codex("response_item", type="function_call", name="shell", call_id="4",
          arguments='{"command": ["bash", "-lc", "exit 3"]}'),
    codex("response_item", type="function_call_output", call_id="4",
          output="Wall time: 0.1 seconds\nProcess exited with code 3\nOutput:\n"),
    codex("event_msg", type="token_count"),
    codex("compacted", message="the story so far"),
)  # fmt: skip


def test_a_codex_rollout_is_kept_with_the_real_output_of_commands() -> None:
    transcript = read("codex", CODEX)
    log, report = transcript
    assert log["system_prompt"] == "be good"
    assert log["model"]["identifier"] == "gpt-test"  # type: ignore[index]
    steps = steps_of(transcript)
    assert [(step["tool"], step["deterministic"]) for step in steps] == [
        ("assistant", False),
        ("exec_command", True),
        ("apply_patch", True),
        ("apply_patch", False),
        ("shell", True),
        ("compact", False),
    ]
    assert steps[1]["output"] == "err\nout\n"
    assert steps[1]["parameters"] == {"cmd": "echo out; echo err >&2", "cwd": f"{ROOT}/sub"}
    assert steps[4]["result"] == {"exit": 3}
    assert steps[4]["output"] == ""
    assert report.left_out == {"event_msg/token_count": 1}


# -- Gemini ---------------------------------------------------------------------------------------


def gemini_call(name: str, args: Json, output: str, **more: object) -> Json:
    answer = {"functionResponse": {"name": name, "response": {"output": output}}}
    return {"name": name, "args": args, "result": [answer], "status": "success"} | more


GEMINI = lines(
    {"sessionId": "g1", "projectHash": "0", "kind": "main"},
    {"$set": {"messages": [{"id": "m0", "type": "user", "content": [{"text": "context"}]}]}},
    {"id": "m1", "type": "user", "content": [{"text": "do it"}]},
    {"id": "m2", "type": "gemini", "content": "", "model": "gemini-test"},
    {"id": "m2", "type": "gemini", "content": "Now.", "model": "gemini-test", "toolCalls": [
        gemini_call("run_shell_command", {"command": "exit 3"},
                    "<untrusted_context>\nOutput: (empty)\nExit Code: 3\n"
                    "Process Group PGID: 7\n</untrusted_context>"),
        gemini_call("replace", {"file_path": f"{ROOT}/b.txt", "old_string": "a",
                                "new_string": "b"}, "done",
                    resultDisplay={"filePath": f"{ROOT}/b.txt", "originalContent": "a\n",
                                   "newContent": "b\n", "isNewFile": False})]},
    {"id": "m3", "type": "user", "content": [{"functionResponse": {}}]},
    {"id": "m4", "type": "info", "content": "hi"},
)  # fmt: skip


def test_a_gemini_session_takes_the_last_word_on_each_message() -> None:
    transcript = read("gemini", GEMINI)
    log, report = transcript
    steps = steps_of(transcript)
    assert [step["tool"] for step in steps] == ["assistant", "run_shell_command", "replace"]
    assert steps[1]["result"] == {"exit": 3}
    assert steps[1]["output"] == ""
    assert [prompt["content"] for prompt in log["prompts"]] == ["context", "do it"]  # type: ignore[attr-defined]
    assert log["outputs"] == [{"name": "b.txt", "content": "b\n"}]
    assert report.left_out == {"function response (its call has it)": 1, "info": 1}


def test_an_older_gemini_session_is_one_document() -> None:
    whole = {"sessionId": "g1", "messages": [{"id": "1", "type": "user", "content": "hi"}]}
    log, _ = read("gemini", [json.dumps(whole, indent=2).encode()])
    assert log["prompts"] == [{"role": "user", "content": "hi"}]


# -- all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini"])
@pytest.mark.parametrize("data", [b"", b"not json\n", b'{"some": "log"}\n', b"[1, 2]\n"])
def test_a_file_that_is_no_transcript_is_refused(agent: str, data: bytes) -> None:
    with pytest.raises(UsageError, match="no prompt, answer or tool call"):
        read(agent, data.splitlines(keepends=True))


def test_an_unknown_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="no transcripts of 'aider'"):
        read("aider", [])


@pytest.mark.parametrize(("agent", "data"), [("claude-code", CLAUDE), ("codex", CODEX)])
def test_a_transcript_cut_anywhere_is_still_read(
    agent: str, data: list[bytes], tmp_path: Path
) -> None:
    """An agent that is killed leaves its file at any byte."""
    whole = b"".join(data)
    for cut in range(len(whole) // 3, len(whole), 97):
        try:
            read(agent, whole[:cut].splitlines(keepends=True))
        except UsageError as error:
            assert "no prompt, answer or tool call" in error.message
