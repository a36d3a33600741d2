"""What the agent does when nobody asks for anything, and that it never stands in the way."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import PATIENCE_S, Agent, agent_in, until

pytestmark = [pytest.mark.needs("linux"), pytest.mark.needs("overlay")]


@contextlib.contextmanager
def agent_with(base: Path, settings: str, log: Path | None = None) -> Iterator[Agent]:
    """An agent for which a workspace is idle after a second, with these settings."""
    home = base / "home"
    home.mkdir()
    (home / "config.toml").write_text(settings)
    env = {"SUBSTRATE_HOME": str(home), "SUBSTRATE_AGENT_IDLE_WORK_S": "1"}
    with agent_in(base, env) as agent:
        with open(log or os.devnull, "wb") as stream:
            agent.start("agent", "serve", stdout=subprocess.DEVNULL, stderr=stream)
        until(agent.state, "an agent")
        yield agent


def went_well(agent: Agent, *words: str) -> None:
    done = agent.run(*words)
    assert done.returncode == 0, done.stderr


def workspace(agent: Agent) -> dict[str, Any]:
    state = agent.state()
    assert state is not None
    found = [one for one in state["watching"] if one["workspace"] == str(agent.workspace)]
    return dict(found[0]) if found else {}


def kinds(agent: Agent) -> list[str]:
    """Oldest first."""
    said = json.loads(agent.run("log", "--json").stdout)["commands"]
    return [entry["kind"] for entry in reversed(said)]


def test_compaction_and_trash(tmp_path: Path) -> None:
    settings = "[retention]\ncheckpoints = 1\nsessions = 0\n[trash]\nmax_age_days = 0\n"
    with agent_with(tmp_path, settings) as agent:
        (agent.workspace / "node_modules").mkdir()
        (agent.workspace / "node_modules/x").write_bytes(b"x")
        for number in range(4):
            went_well(agent, "-c", f"echo {number} > f{number}; rm -rf node_modules")
        trash = agent.workspace / ".substrate-git/trash"
        until(lambda: workspace(agent).get("idle_work"), "idle work")
        until(lambda: not any(path.is_file() for path in trash.rglob("x")), "empty trash")
        # A session that is closed, beside a newer one, may be squashed.
        (agent.workspace / ".substrate-git/config.toml").write_text("[compact]\nauto = false\n")
        went_well(agent, "session", "close")
        went_well(agent, "--session", "s-other", "-c", "echo x > x")
        (agent.workspace / ".substrate-git/config.toml").write_text("[compact]\nauto = true\n")
        until(lambda: "squash" in kinds(agent), "a squash")
        until(lambda: workspace(agent)["idle_work"]["compacted"], "word of it")
        assert b"tidied up" in agent.run("agent", "status").stdout
        went_well(agent, "fsck")


def test_a_workspace_that_is_not_watched_is_scanned(tmp_path: Path) -> None:
    with agent_with(tmp_path, "[agent]\nwatch = false\n") as agent:
        went_well(agent, "-c", "true")
        (agent.workspace / "by-hand").write_bytes(b"x")
        until(lambda: kinds(agent) == ["baseline", "command", "external"], "the edit in the log")
        assert not workspace(agent)["watched"]
        assert workspace(agent)["why_not"] == "agent.watch is false"


def test_never_while_a_command_runs(tmp_path: Path) -> None:
    with agent_with(tmp_path, "") as agent:
        go = tmp_path / "go"
        os.mkfifo(go)
        running = agent.start("-c", f"cat {go}")
        until(lambda: workspace(agent).get("watched"), "watching")
        until(lambda: workspace(agent)["gave_way"], "a try to tidy up")
        assert "idle_work" not in workspace(agent)
        go.write_bytes(b"")
        running.communicate(timeout=PATIENCE_S)
        went_well(agent, "-c", "true")
        until(lambda: workspace(agent).get("idle_work"), "idle work")
        assert workspace(agent)["idle_work"]["at"] > agent.completed()[-2]["ts"]


def test_what_goes_wrong_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with agent_with(tmp_path, "", log) as agent:
        went_well(agent, "-c", "true")
        index = agent.workspace / ".substrate-git/index/history.db"
        # It has tidied up once: what it does next is to record the edit.
        until(lambda: workspace(agent).get("idle_work"), "idle work")
        until(lambda: workspace(agent).get("watched"), "watching")
        for path in index.parent.glob("history.db*"):
            path.rename(path.with_name("gone-" + path.name))
        (agent.workspace / "by-hand").write_bytes(b"x")
        until(lambda: b"its index is gone" in log.read_bytes(), "a line in the log")
        assert os.fsencode(agent.workspace) in log.read_bytes()


def test_the_settings_of_idle_exit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("[agent]\nidle_exit_s = 5\n")
    with agent_in(tmp_path, {"SUBSTRATE_HOME": str(home), "SUBSTRATE_AGENT_IDLE_S": ""}) as agent:
        serving = agent.start("agent", "serve")
        until(lambda: (agent.state() or {}).get("idle_exit_s") == 5, "an agent with that setting")
        assert serving.communicate(timeout=PATIENCE_S)[0].startswith(b"serving")
        agent.env["SUBSTRATE_AGENT_IDLE_S"] = "33"
        agent.serve()
        assert (agent.state() or {})["idle_exit_s"] == 33
