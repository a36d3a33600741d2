"""What the hooks of coding agents report, in one form; nothing they send may raise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.coding_agents.hook_events import HOOKED_AGENTS, EventKind, HookEvent, read_event
from substrate.coding_agents.hook_payloads.codex import edits_of
from substrate.model import CannotEditError, Content
from tests.hook_reports import Claude, Codex, Gemini, Report, encoded

ROOT = Path("/home/dev/project")
FILE = ROOT / "b.txt"
PATCH = """*** Begin Patch
*** Update File: b.txt
@@
-hello
+goodbye
 world
*** Add File: c.txt
+new file
*** Delete File: d.txt
*** Update File: e.txt
*** Move to: f.txt
*** End Patch"""


def event(agent: str, report: Report) -> HookEvent:
    found = read_event(agent, encoded(report))
    assert found is not None
    return found


def test_claude_names_session_prompt_model_and_call() -> None:
    claude = Claude(ROOT)
    start = event("claude-code", claude.start())
    assert (start.kind, start.model) == (EventKind.SESSION_START, "claude-sonnet-4-5")
    asked = event("claude-code", claude.prompt("please edit the files"))
    assert (asked.kind, asked.text) == (EventKind.PROMPT, "please edit the files")
    before = event("claude-code", claude.edit_call(FILE, "toolu_2", "hello", "goodbye"))
    assert before.kind is EventKind.BEFORE_EDIT
    assert [edit.path for edit in before.edits] == [str(FILE)]
    after = event("claude-code", claude.edit(FILE, "toolu_2", "hello", "goodbye", "hello\nworld\n"))
    assert (after.kind, after.tool, after.call_id) == (EventKind.AFTER_EDIT, "Edit", "toolu_2")
    assert (after.session, after.prompt) == (claude.session, asked.prompt)
    assert event("claude-code", claude.stop()).kind is EventKind.PROMPT_END
    assert event("claude-code", claude.end()).kind is EventKind.SESSION_END


def test_an_edit_of_claude_says_what_the_file_was_and_becomes() -> None:
    report = Claude(ROOT).edit(FILE, "toolu_2", "hello", "goodbye", "hello\nworld\n")
    reported = event("claude-code", report).edits[0].reported
    assert reported.before == Content(b"hello\nworld\n")
    assert reported.rewrite is not None
    assert reported.rewrite(b"hello\nworld\n") == b"goodbye\nworld\n"
    with pytest.raises(CannotEditError):
        reported.rewrite(b"other\n")


def test_several_edits_of_one_call_follow_each_other() -> None:
    edits = [
        {"old_string": "a", "new_string": "b"},
        {"old_string": "b", "new_string": "c", "replace_all": True},
    ]
    report = Claude(ROOT).before("MultiEdit", "t", file_path=str(FILE), edits=edits)
    report |= {"hook_event_name": "PostToolUse", "tool_response": {"originalFile": "ab"}}
    reported = event("claude-code", report).edits[0].reported
    assert reported.rewrite is not None
    assert reported.rewrite(b"ab") == b"cc"


def test_a_written_file_that_was_not_there() -> None:
    reported = event("claude-code", Claude(ROOT).write(FILE, "t", "new\n", None)).edits[0].reported
    assert (reported.before, reported.after) == (Content(None), Content(b"new\n"))


def test_a_tool_that_failed_changed_nothing() -> None:
    report = Claude(ROOT).before("Edit", "t", file_path=str(FILE), old_string="a", new_string="b")
    assert event("claude-code", report | {"hook_event_name": "PostToolUseFailure"}).failed


def test_a_sub_agent_is_named() -> None:
    report = Claude(ROOT).edit_call(FILE, "t", "a", "b") | {
        "agent_id": "a1b2", "agent_type": "Explore",
    }  # fmt: skip
    found = event("claude-code", report)
    assert (found.subagent, found.subagent_type) == ("a1b2", "Explore")


def test_a_patch_of_codex_names_every_file_and_what_becomes_of_it() -> None:
    found = event("codex", Codex(ROOT).patch("PostToolUse", "call_1", PATCH))
    edits = {edit.path: edit.reported.rewrite for edit in found.edits}
    assert list(edits) == ["b.txt", "c.txt", "d.txt", "e.txt", "f.txt"]
    assert found.model == "gpt-5-codex"
    changed, added, deleted = edits["b.txt"], edits["c.txt"], edits["d.txt"]
    assert changed is not None
    assert added is not None
    assert deleted is not None
    assert changed(b"hello\nworld\n") == b"goodbye\nworld\n"
    assert added(None) == b"new file\n"
    assert deleted(b"anything") is None
    moved, left = edits["f.txt"], edits["e.txt"]
    assert moved is not None
    assert left is not None
    assert (moved(b"of e\n"), left(b"of e\n")) == (b"of e\n", None)
    assert next(edit for edit in found.edits if edit.path == "f.txt").moved_from == "e.txt"
    with pytest.raises(CannotEditError):
        changed(b"else\n")


def test_a_shell_call_of_codex_and_of_gemini() -> None:
    ran = event("codex", Codex(ROOT).shell("PreToolUse", "call_2", "make"))
    assert (ran.kind, ran.command, ran.call_id) == (EventKind.BEFORE_SHELL, "make", "call_2")
    ran = event("gemini-cli", Gemini(ROOT).shell("AfterTool", "make"))
    assert (ran.kind, ran.command, ran.call_id) == (EventKind.AFTER_SHELL, "make", "")


def test_gemini_shows_both_versions_or_only_what_it_was_asked_for() -> None:
    gemini = Gemini(ROOT)
    report = gemini.replace(FILE, "hello", "goodbye", "hello\nworld\n")
    whole = event("gemini-cli", report).edits[0].reported
    assert whole.before == Content(b"hello\nworld\n")
    assert whole.after == Content(b"goodbye\nworld\n")
    only = event("gemini-cli", gemini.replace(FILE, "hello", "goodbye")).edits[0].reported
    assert only.before is None
    assert only.rewrite is not None
    assert only.rewrite(b"hello") == b"goodbye"
    written = event("gemini-cli", gemini.write(FILE, "new\n")).edits[0].reported
    assert written.after == Content(b"new\n")


@pytest.mark.parametrize("agent", HOOKED_AGENTS)
@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", b"[]", b"null", b"{}", b'{"hook_event_name": 7}', b"\xff{", b"[" * 100_000],
)
def test_what_is_no_report_is_ignored(agent: str, data: bytes) -> None:
    assert read_event(agent, data) is None


def test_an_unknown_agent_or_tool_is_ignored() -> None:
    claude = Claude(ROOT)
    assert read_event("other", encoded(claude.start())) is None
    assert read_event("claude-code", encoded(claude.before("Bash", "t", command="ls"))) is None
    assert read_event("claude-code", encoded(claude.report("PreCompact"))) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = (
    *(
        "session_id",
        "cwd",
        "tool_name",
        "tool_input",
        "tool_response",
        "prompt",
        "model",
        "turn_id",
    ),
    *("tool_use_id", "agent_id"),
)


@given(
    st.sampled_from(HOOKED_AGENTS),
    st.sampled_from(["PreToolUse", "PostToolUse", "AfterTool", "UserPromptSubmit", "Stop"]),
    st.dictionaries(
        st.sampled_from(FIELDS),
        json_values | st.sampled_from(["Edit", "Write", "apply_patch", "replace", "x"]),
    ),
)
def test_no_field_of_another_type_raises(agent: str, name: str, fields: Report) -> None:
    report = {"session_id": "s", "cwd": "/x", "hook_event_name": name, **fields}
    found = read_event(agent, json.dumps(report).encode())
    for edit in found.edits if found else ():
        if edit.reported.rewrite is not None:
            try:
                edit.reported.rewrite(b"text\n")
            except CannotEditError:
                pass


@pytest.mark.parametrize("name", ["a\0b", "\ud800", ""])
def test_what_no_file_can_be_called_is_left_out(name: str) -> None:
    claude = Claude(ROOT)
    report = claude.before("Write", "toolu_1", file_path=name, content="x")
    assert event("claude-code", report).edits == ()
    assert read_event("claude-code", encoded({**claude.start(), "cwd": name})) is None


def test_a_long_patch_is_split_once() -> None:
    """Each file has only its own part: the time for a patch grows with its length."""
    names = [f"d/{number}.txt" for number in range(2000)]
    hunks = [f"*** Update File: {name}\n@@\n-old\n+{name}" for name in names]
    edits = edits_of("\n".join(["*** Begin Patch", *hunks, "*** End Patch"]))
    assert [one.path for one in edits] == names
    for one in edits:
        rewrite = one.reported.rewrite
        assert rewrite is not None
        assert rewrite(b"old\n") == one.path.encode() + b"\n"
        assert len(rewrite.args[0]) < 100  # type: ignore[attr-defined]  # a partial


def test_cursor_reports_commands_and_finished_edits() -> None:
    base = {
        "conversation_id": "c-1", "generation_id": "g-1", "workspace_roots": [str(ROOT)],
        "model": "auto",
    }  # fmt: skip
    prompt = event("cursor", {**base, "hook_event_name": "beforeSubmitPrompt", "prompt": "go"})
    assert prompt.kind is EventKind.PROMPT
    assert (prompt.session, prompt.prompt, prompt.text) == ("c-1", "g-1", "go")
    assert prompt.cwd == str(ROOT)
    shell = {**base, "hook_event_name": "afterShellExecution", "command": "make", "output": ""}
    ran = event("cursor", shell)
    assert (ran.kind, ran.command, ran.tool) == (EventKind.AFTER_SHELL, "make", "Shell")
    steps = [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "c"}]
    edit = {**base, "hook_event_name": "afterFileEdit", "file_path": str(FILE), "edits": steps}
    [done] = event("cursor", edit).edits
    assert done.reported.rewrite is not None
    assert (done.path, done.reported.rewrite(b"xa")) == (str(FILE), b"xc")


def test_opencode_reports_calls_with_their_ids() -> None:
    base = {"cwd": str(ROOT), "sessionID": "ses_1", "callID": "call_1"}
    after = {**base, "hook_event_name": "tool.execute.after"}
    ran = event("opencode", {**after, "tool": "bash", "tool_input": {"command": "make"}})
    assert (ran.kind, ran.session, ran.call_id) == (EventKind.AFTER_SHELL, "ses_1", "call_1")
    assert ran.command == "make"
    wanted = {"filePath": str(FILE), "oldString": "a", "newString": "b", "replaceAll": True}
    [edit] = event("opencode", {**after, "tool": "edit", "tool_input": wanted}).edits
    assert edit.reported.rewrite is not None
    assert edit.reported.rewrite(b"aa") == b"bb"
    wanted = {"filePath": str(FILE), "content": "new"}
    [written] = event("opencode", {**after, "tool": "write", "tool_input": wanted}).edits
    assert written.reported.after == Content(b"new")
    idle = {"cwd": str(ROOT), "hook_event_name": "session.idle", "properties": {"sessionID": "s"}}
    assert event("opencode", idle).kind is EventKind.PROMPT_END
    assert read_event("opencode", encoded({**after, "tool": "read", "tool_input": {}})) is None
