"""The MCP server, started by the real agents: each takes back its own work, and no other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.real_agents.conftest import CODEX_CONFIG, GEMINI_SETTINGS, Home

pytestmark = pytest.mark.agents

NewHome = Callable[[str], Home]
Call = Callable[..., dict[str, Any]]
MISTAKE = "rm a.txt"


def prepared(in_home: NewHome, agent: str) -> tuple[Home, str]:
    """A connected agent in a project with a person's command, and that command's id."""
    home = in_home("home")
    for directory, name, text in (
        (".codex", "config.toml", CODEX_CONFIG),
        (".gemini", "settings.json", GEMINI_SETTINGS),
    ):
        (home.home / directory).mkdir()
        (home.home / directory / name).write_text(text)
    home.with_daemon()
    home.substrate("connect", agent, "--yes", *(("--trust-hooks",) * (agent == "codex")))
    home.substrate("-c", "echo theirs > theirs.txt")
    # The report of an observed command is recorded after its hook has returned.
    home.env["SCRIPTED_PAUSE_S"] = "1.5"
    home.env["IS_SANDBOX"] = "1"  # Claude Code lets root bypass permissions only in a sandbox
    return home, home.entries()[-1]["command_id"]


def check(home: Home, theirs: str, results: list[str]) -> None:
    undone, refused = results[-2:]
    assert "reverse_with" in undone and "a.txt" in undone, results
    assert theirs in refused and "not to your session" in refused, results
    assert home.tree() == {"a.txt": "hello\n", "theirs.txt": "theirs\n"}
    kinds = [one["kind"] for one in home.entries() if one["session_id"]]
    assert kinds == ["command", "command", "undo"]


def script(shell: dict[str, Any], undo: Call, theirs: str) -> list[list[dict[str, Any]]]:
    return [[shell], [undo()], [undo(id=theirs)]]


def test_claude_code(in_home: NewHome) -> None:
    home, theirs = prepared(in_home, "claude-code")

    def undo(**given: str) -> dict[str, Any]:
        return {"tool": "mcp__substrate__undo", "input": given}

    turns = script({"tool": "Bash", "input": {"command": MISTAKE}}, undo, theirs)
    found = {"query": "select:mcp__substrate__undo", "max_results": 5}
    turns.insert(1, [{"tool": "ToolSearch", "input": found}])
    done = home.claude(turns, "--permission-mode", "bypassPermissions")
    assert done.exit == 0, done.said
    check(home, theirs, done.results())


def test_codex(in_home: NewHome) -> None:
    home, theirs = prepared(in_home, "codex")
    config = home.home / ".codex" / "config.toml"
    # A model that Codex does not know: others search for tools of MCP before they call them. And
    # Codex does not wait long for a server: on a busy machine it would go on without it.
    text = config.read_text().replace("gpt-5.5", "scripted")
    text = text.replace('substrate"]\n', 'substrate"]\ndefault_tools_approval_mode = "approve"\n')
    config.write_text("mcp_optional_startup_grace_ms = 60000\n" + text)

    def undo(**given: str) -> dict[str, Any]:
        return {"tool": "undo", "namespace": "mcp__substrate", "input": given}

    shell = {"tool": "exec_command", "input": {"cmd": MISTAKE, "yield_time_ms": 9000}}
    done = home.codex(script(shell, undo, theirs))
    assert done.exit == 0, done.said
    check(home, theirs, done.results())


def test_gemini(in_home: NewHome) -> None:
    home, theirs = prepared(in_home, "gemini")

    def undo(**given: str) -> dict[str, Any]:
        return {"tool": "mcp_substrate_undo", "input": given}

    shell = {"tool": "run_shell_command", "input": {"command": MISTAKE}}
    done = home.gemini(script(shell, undo, theirs), "--approval-mode", "yolo")
    assert done.exit == 0, done.said
    check(home, theirs, done.results())
