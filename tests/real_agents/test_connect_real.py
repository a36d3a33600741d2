"""`connect` with the real agents: what they do with the written settings, and that rules hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import until
from tests.real_agents.conftest import CODEX_CONFIG, GEMINI_SETTINGS, Home

pytestmark = pytest.mark.agents

NewHome = Callable[[str], Home]


def bash(command: str) -> list[dict[str, object]]:
    return [{"tool": "Bash", "input": {"command": command}}]


def claude_turns(project: Path) -> list[list[dict[str, object]]]:
    write = {"file_path": str(project / "new.txt"), "content": "new\n"}
    return [
        bash("echo one > one.txt; echo said; echo wrong >&2"),
        bash("cd sub"),
        bash("pwd; false"),
        [{"tool": "Write", "input": write}],
        bash("touch denied.txt"),
    ]


def plain(results: list[str], home: Home) -> list[str]:
    return [text.replace(str(home.home), "HOME") for text in results]


CLAUDE_SETTINGS = """\
{
  // mine
  "permissions": {"allow": ["Bash(echo:*)", "Bash(pwd:*)", "Bash(cd:*)", "Bash(false)", "Write"],
                  "deny": ["Bash(touch:*)"]}
}
"""


def test_claude_code_works_as_without_substrate_and_is_recorded(in_home: NewHome) -> None:
    ran = {}
    for name in ("bare", "connected"):
        home = in_home(name)
        (home.project / "sub").mkdir()
        settings = home.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        text = json.dumps(json.loads(re.sub("//.*", "", CLAUDE_SETTINGS)), indent=2)
        settings.write_text(text)
        if name == "connected":
            home.substrate("connect", "claude-code", "--yes")
            home.watch_hooks()
        done = home.claude(claude_turns(home.project), "--permission-mode", "acceptEdits")
        assert done.exit == 0, done.said
        assert (home.project / "one.txt").read_text() == "one\n"
        assert (home.project / "new.txt").read_text() == "new\n"
        assert not (home.project / "denied.txt").exists()
        ran[name] = plain(done.results(), home)
    assert ran["connected"] == ran["bare"]
    assert any("echo one > one.txt" in command for command in home.commands())
    events = home.hook_events()
    assert events[:2] == [("SessionStart", ""), ("UserPromptSubmit", "")]
    assert ("PreToolUse", "Write") in events and ("PostToolUse", "Write") in events
    assert not [tool for _, tool in events if tool == "Bash"]
    assert [event for event, _ in events[-2:]] == ["Stop", "SessionEnd"]
    home.substrate("disconnect")
    assert settings.read_text() == text


def codex_turns() -> list[list[dict[str, object]]]:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+new\n*** End Patch"
    return [
        [{"tool": "exec_command", "input": {"cmd": "echo one > one.txt"}}],
        [{"tool": "apply_patch", "input": patch}],
        [{"tool": "exec_command", "input": {"cmd": "touch denied.txt"}}],
    ]


def test_codex_runs_trusted_hooks_and_keeps_its_rules(in_home: NewHome) -> None:
    home = in_home("home")
    directory = home.home / ".codex"
    (directory / "rules").mkdir(parents=True)
    config = directory / "config.toml"
    config.write_text(CODEX_CONFIG)
    rule = 'prefix_rule(pattern=["touch"], decision="forbidden")\n'
    (directory / "rules" / "default.rules").write_text(rule)
    home.substrate("connect", "codex", "--yes", "--trust-hooks")
    status = json.loads(home.substrate("connect", "--status", "codex", "--json").stdout)
    assert "/hooks" not in json.dumps(status["agents"][0]["why_not_more"])
    trusted = config.read_text()
    assert trusted.startswith(CODEX_CONFIG) and "trusted_hash" in trusted
    home.watch_hooks()
    done = home.codex(codex_turns())
    assert done.exit == 0, done.said
    assert '"type":"error"' not in done.said  # nothing in the settings displeases Codex
    assert (home.project / "one.txt").read_text() == "one\n"
    assert (home.project / "new.txt").read_text() == "new\n"
    assert not (home.project / "denied.txt").exists()
    events = home.hook_events()
    assert events[:2] == [("SessionStart", ""), ("UserPromptSubmit", "")]
    for tool in ("Bash", "apply_patch"):
        assert ("PreToolUse", tool) in events and ("PostToolUse", tool) in events, events
    assert ("Stop", "") in events
    left = config.read_text()
    home.substrate("disconnect")
    assert not (directory / "hooks.json").exists()
    # Codex itself adds the project to its configuration when it runs.
    assert config.read_text() == CODEX_CONFIG + left.removeprefix(trusted)


def test_codex_skips_hooks_that_are_not_trusted(in_home: NewHome) -> None:
    home = in_home("home")
    (home.home / ".codex").mkdir()
    (home.home / ".codex" / "config.toml").write_text(CODEX_CONFIG)
    home.substrate("connect", "codex", "--yes", "--no-mcp")
    status = json.loads(home.substrate("connect", "--status", "codex", "--json").stdout)
    assert "hooks" in json.dumps(status["agents"][0]["why_not_more"])
    assert (home.home / ".codex" / "config.toml").read_text() == CODEX_CONFIG
    home.watch_hooks()
    home.codex(codex_turns()[:1])
    assert home.hook_events() == []


def test_gemini_runs_hooks_and_keeps_its_policies(in_home: NewHome) -> None:
    home = in_home("home")
    directory = home.home / ".gemini"
    (directory / "policies").mkdir(parents=True)
    settings = directory / "settings.json"
    settings.write_text(GEMINI_SETTINGS)
    rule = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "touch"\n'
    (directory / "policies" / "mine.toml").write_text(rule + 'decision = "deny"\npriority = 900\n')
    home.substrate("connect", "gemini", "--yes")
    home.watch_hooks()
    new = {"file_path": str(home.project / "new.txt"), "content": "new\n"}
    turns: list[list[dict[str, object]]] = [
        [{"tool": "run_shell_command", "input": {"command": "echo one > one.txt"}}],
        [{"tool": "write_file", "input": new}],
        [{"tool": "run_shell_command", "input": {"command": "touch denied.txt"}}],
    ]
    done = home.gemini(turns, "--approval-mode", "yolo")
    assert done.exit == 0, done.said
    assert (home.project / "one.txt").read_text() == "one\n"
    assert (home.project / "new.txt").read_text() == "new\n"
    assert not (home.project / "denied.txt").exists()
    events = home.hook_events()
    assert [event for event, _ in events[:2]] == ["SessionStart", "BeforeAgent"]
    for tool in ("run_shell_command", "write_file"):
        assert ("BeforeTool", tool) in events and ("AfterTool", tool) in events, events
    assert "AfterAgent" in [event for event, _ in events]
    home.substrate("disconnect")
    assert settings.read_text() == GEMINI_SETTINGS


@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli"])
def test_a_plugin_records_edits_and_prompts(in_home: NewHome, agent: str) -> None:
    home = in_home("home")
    home.with_daemon()
    home.substrate("-c", "true")
    new = {"file_path": str(home.project / "new.txt"), "content": "new\n"}
    if agent == "claude-code":
        place = home.home / "plugin"
        home.substrate("connect", agent, "--plugin", str(place))
        home.env["IS_SANDBOX"] = "1"
        mode = ("--permission-mode", "bypassPermissions")
        done = home.claude([[{"tool": "Write", "input": new}]], "--plugin-dir", str(place), *mode)
    else:
        (home.home / ".gemini").mkdir()
        (home.home / ".gemini" / "settings.json").write_text(GEMINI_SETTINGS)
        place = home.home / ".gemini" / "extensions" / "substrate"
        home.substrate("connect", agent, "--plugin", str(place))
        turns = [[{"tool": "write_file", "input": new}]]
        done = home.gemini(turns, "--approval-mode", "yolo")
    assert done.exit == 0, done.said
    until(lambda: home.entries()[-1]["kind"] == "edit", "the edit")
    edit = home.entries()[-1]
    assert (edit["agent_id"], edit["changed_files"]) == (agent, ["new.txt"])
    shown = json.loads(home.substrate("show", edit["prompt_id"], "--json").stdout)
    assert shown["text"] == "please work"
    if agent == "gemini-cli":  # Claude Code lets its model search for tools of MCP
        assert "mcp_substrate_undo" in json.dumps([one["body"] for one in done.requests])
