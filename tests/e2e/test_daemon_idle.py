"""What the daemon does while it is idle, and that it never delays a command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import PATIENCE_S, Daemon, daemon_in, until

pytestmark = [pytest.mark.needs("linux"), pytest.mark.needs("overlay")]


@contextlib.contextmanager
def daemon_with(base: Path, settings: str, log: Path | None = None) -> Iterator[Daemon]:
    """A daemon for which a workspace is idle after a second, with these settings."""
    home = base / "home"
    home.mkdir()
    (home / "config.toml").write_text(settings)
    env = {"SUBSTRATE_HOME": str(home), "SUBSTRATE_AGENT_IDLE_WORK_S": "1"}
    with daemon_in(base, env) as daemon:
        with open(log or os.devnull, "wb") as stream:
            daemon.start("daemon", "serve", stdout=subprocess.DEVNULL, stderr=stream)
        until(daemon.state, "a daemon")
        yield daemon


def went_well(daemon: Daemon, *words: str) -> None:
    done = daemon.run(*words)
    assert done.returncode == 0, done.stderr


def workspace(daemon: Daemon) -> dict[str, Any]:
    state = daemon.state()
    assert state is not None
    found = [one for one in state["watching"] if one["workspace"] == str(daemon.workspace)]
    return dict(found[0]) if found else {}


def kinds(daemon: Daemon) -> list[str]:
    """Oldest first."""
    said = json.loads(daemon.run("log", "--json").stdout)["commands"]
    return [entry["kind"] for entry in reversed(said)]


def test_compaction_and_trash(tmp_path: Path) -> None:
    settings = "[retention]\ncheckpoints = 1\nsessions = 0\n[trash]\nmax_age_days = 0\n"
    with daemon_with(tmp_path, settings) as daemon:
        (daemon.workspace / "node_modules").mkdir()
        (daemon.workspace / "node_modules/x").write_bytes(b"x")
        for number in range(4):
            went_well(daemon, "-c", f"echo {number} > f{number}; rm -rf node_modules")
        trash = daemon.workspace / ".substrate-git/trash"
        until(lambda: workspace(daemon).get("idle_work"), "idle work")
        until(lambda: not any(path.is_file() for path in trash.rglob("x")), "empty trash")
        # A session that is closed, beside a newer one, may be squashed.
        (daemon.workspace / ".substrate-git/config.toml").write_text("[compact]\nauto = false\n")
        went_well(daemon, "session", "close")
        went_well(daemon, "--session", "s-other", "-c", "echo x > x")
        (daemon.workspace / ".substrate-git/config.toml").write_text("[compact]\nauto = true\n")
        until(lambda: "squash" in kinds(daemon), "a squash")
        until(lambda: workspace(daemon)["idle_work"]["compacted"], "word of it")
        assert b"tidied up" in daemon.run("daemon", "status").stdout
        went_well(daemon, "fsck")


def test_a_workspace_that_is_not_watched_is_scanned(tmp_path: Path) -> None:
    with daemon_with(tmp_path, "[agent]\nwatch = false\n") as daemon:
        went_well(daemon, "-c", "true")
        (daemon.workspace / "by-hand").write_bytes(b"x")
        until(lambda: kinds(daemon) == ["baseline", "command", "external"], "the edit in the log")
        assert not workspace(daemon)["watched"]
        assert workspace(daemon)["why_not"] == "daemon.watch is false"


def test_never_while_a_command_runs(tmp_path: Path) -> None:
    with daemon_with(tmp_path, "") as daemon:
        go = tmp_path / "go"
        os.mkfifo(go)
        running = daemon.start("-c", f"cat {go}")
        until(lambda: workspace(daemon).get("watched"), "watching")
        until(lambda: workspace(daemon)["gave_way"], "a try to tidy up")
        assert "idle_work" not in workspace(daemon)
        go.write_bytes(b"")
        running.communicate(timeout=PATIENCE_S)
        went_well(daemon, "-c", "true")
        until(lambda: workspace(daemon).get("idle_work"), "idle work")
        assert workspace(daemon)["idle_work"]["at"] > daemon.completed()[-2]["ts"]


def test_what_goes_wrong_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with daemon_with(tmp_path, "", log) as daemon:
        went_well(daemon, "-c", "true")
        index = daemon.workspace / ".substrate-git/index/history.db"
        # It has tidied up once: what it does next is to record the edit.
        until(lambda: workspace(daemon).get("idle_work"), "idle work")
        until(lambda: workspace(daemon).get("watched"), "watching")
        for path in index.parent.glob("history.db*"):
            path.rename(path.with_name("gone-" + path.name))
        (daemon.workspace / "by-hand").write_bytes(b"x")
        until(lambda: b"its index is gone" in log.read_bytes(), "a line in the log")
        assert os.fsencode(daemon.workspace) in log.read_bytes()


def test_the_settings_of_idle_exit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("[agent]\nidle_exit_s = 5\n")
    with daemon_in(
        tmp_path, {"SUBSTRATE_HOME": str(home), "SUBSTRATE_DAEMON_IDLE_S": ""}
    ) as daemon:
        serving = daemon.start("daemon", "serve")
        until(lambda: (daemon.state() or {}).get("idle_exit_s") == 5, "a daemon with that setting")
        assert serving.communicate(timeout=PATIENCE_S)[0].startswith(b"serving")
        daemon.env["SUBSTRATE_AGENT_IDLE_S"] = "33"  # its former name
        daemon.serve()
        assert (daemon.state() or {})["idle_exit_s"] == 33


def test_a_daemon_that_never_ends_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with daemon_in(
        tmp_path, {"SUBSTRATE_HOME": str(home), "SUBSTRATE_DAEMON_IDLE_S": "0"}
    ) as daemon:
        daemon.serve()
        assert (daemon.state() or {})["idle_exit_s"] == 0
        text = daemon.run("daemon", "status").stdout.decode()
        assert re.search(r"^ends when idle +never$", text, re.MULTILINE)
        assert "_" not in text.replace(str(tmp_path), ""), "words, not the names of fields"
        assert daemon.run("daemon", "stop").returncode == 0
        told = daemon.run("daemon", "status")
        assert told.returncode == 1
        assert b"the next recorded command starts it" in told.stderr
