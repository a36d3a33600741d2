"""Four real agents at once in one project, eight calls each: every diff is its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.daemons import until
from tests.real_agents.conftest import CODEX_CONFIG, GEMINI_SETTINGS, Home

pytestmark = pytest.mark.agents

NewHome = Callable[[str], Home]
MANY = range(8)


def bash_calls(who: str) -> list[list[dict[str, Any]]]:
    """All of them in one turn: Claude Code may run them at once."""
    return [
        [
            {"tool": "Bash", "input": {"command": f"echo {who} > {who}-{n}; echo {who} >> all"}}
            for n in MANY
        ]
    ]


def codex_calls() -> list[list[dict[str, Any]]]:
    patch = "*** Begin Patch\n*** Add File: codex-{}\n+codex\n*** End Patch"
    return [[{"tool": "apply_patch", "input": patch.format(n)} for n in MANY]]


def gemini_calls(home: Home) -> list[list[dict[str, Any]]]:
    def write(number: int) -> dict[str, Any]:
        where = {"file_path": str(home.project / f"gemini-{number}"), "content": "gemini\n"}
        return {"tool": "write_file", "input": where}

    return [[write(n) for n in MANY]]


def test_four_agents(in_home: NewHome) -> None:
    home = in_home("home")
    for directory, name, text in (
        (".codex", "config.toml", CODEX_CONFIG),
        (".gemini", "settings.json", GEMINI_SETTINGS),
    ):
        (home.home / directory).mkdir()
        (home.home / directory / name).write_text(text)
    home.with_daemon()
    home.env["IS_SANDBOX"] = "1"  # Claude Code lets root bypass permissions only in a sandbox
    home.substrate("connect", "claude-code", "codex", "gemini", "--yes", "--trust-hooks")
    home.substrate("-c", "true")
    mode = ("--permission-mode", "bypassPermissions")
    work = [
        lambda: home.claude(bash_calls("ada"), *mode),
        lambda: home.claude(bash_calls("bob"), *mode),
        lambda: home.codex(codex_calls()),
        lambda: home.gemini(gemini_calls(home), "--approval-mode", "yolo"),
    ]
    with ThreadPoolExecutor(len(work)) as pool:
        for done in pool.map(lambda one: one(), work):
            assert done.exit == 0, done.said

    def made() -> dict[str, set[str]]:
        """Session -> what its entries changed, each exactly its own file (and the common one)."""
        found: dict[str, set[str]] = {}
        for one in home.entries():
            if one["kind"] in ("command", "edit") and one["changed_files"]:
                [own] = set(one["changed_files"]) - {"all"}
                assert own in one["command"] or own in one.get("typed", ""), one
                assert one["prompt_id"], one
                found.setdefault(one["session_id"], set()).add(own)
        return found

    whose = {f"{name}-{n}" for name in ("ada", "bob", "codex", "gemini") for n in MANY}
    until(lambda: set().union(*made().values()) == whose, "all records")
    sessions = made().values()
    assert len(sessions) == 4
    assert all(len({name.partition("-")[0] for name in own}) == 1 for own in sessions)
    assert sorted(home.tree()["all"].split()) == ["ada"] * 8 + ["bob"] * 8
    home.substrate("fsck")
