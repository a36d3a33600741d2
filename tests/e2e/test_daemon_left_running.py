"""What a command's background processes change arrives when they end, while a daemon runs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import Daemon, daemon_in, until

pytestmark = pytest.mark.needs("linux", "world-overlay")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        yield started.serve()


def _log(daemon: Daemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(daemon.run("log", "--json").stdout)["commands"]
    return found


def _leave(daemon: Daemon, go: Path, then: str) -> bytes:
    """Run a command that leaves a process, which waits for `go`; returns what was said."""
    wait = f"while ! [ -e {go} ]; do sleep 0.05; done"
    done = daemon.run("-c", f"echo 1 > now; ({wait}; {then}) > /dev/null 2>&1 &")
    assert done.returncode == 0
    assert (daemon.workspace / "now").read_text() == "1\n"
    return done.stderr


def test_its_change_arrives_without_another_command(daemon: Daemon, tmp_path: Path) -> None:
    said = _leave(daemon, tmp_path / "go", "echo 2 > late")
    assert b"the daemon brings in what they change when they have ended" in said
    assert not (daemon.workspace / "late").exists()
    (tmp_path / "go").touch()
    until((daemon.workspace / "late").exists, "the change of the background process")
    until(lambda: len(_log(daemon)) == 3, "its entry")
    newest = _log(daemon)[0]
    assert newest["changed_files"] == ["late"]
    assert newest["command"].startswith("world apply wld_")
    until(lambda: not _left(daemon), "the end of its world")
    assert daemon.run("undo").returncode == 0
    assert not (daemon.workspace / "late").exists()


def _left(daemon: Daemon) -> set[str]:
    """The worlds in which processes outlive their commands."""
    worlds = json.loads(daemon.run("world", "list", "--json").stdout)["worlds"]
    return {one["world_id"] for one in worlds}


def test_each_of_two_arrives_when_it_ends_and_a_killed_one_too(
    daemon: Daemon, tmp_path: Path
) -> None:
    _leave(daemon, tmp_path / "never", f"echo $$ > {tmp_path}/none")
    killed = _left(daemon)
    _leave(daemon, tmp_path / "go", "echo 2 > late")
    (tmp_path / "go").touch()
    until((daemon.workspace / "late").exists, "the change of the one that ended")
    until(lambda: _left(daemon) == killed, "the end of its world only")
    # A killed init leaves no mark that it has ended: its lock shows it.
    [meta] = [path / "meta.json" for path in daemon.worlds() if path.name in killed]
    os.kill(int(json.loads(meta.read_bytes())["init_pid"]), signal.SIGKILL)
    until(lambda: not _left(daemon), "the end of the killed one")


def test_a_conflict_is_reported_by_the_next_call(daemon: Daemon, tmp_path: Path) -> None:
    (daemon.workspace / "both").write_text("a\n")
    _leave(daemon, tmp_path / "go", "echo world > both")
    (daemon.workspace / "both").write_text("mine\n")
    (tmp_path / "go").touch()
    until(lambda: not _left(daemon), "the end of its world")
    assert (daemon.workspace / "both").read_text() == "mine\n"
    said = [daemon.run("-c", "true").stderr for _ in range(2)]
    assert b"conflict: both" in said[0]
    assert b"substrate recover show c-" in said[0]
    assert said[1] == b"", "reported once"


def test_without_a_daemon_the_next_command_brings_it_in(daemon: Daemon, tmp_path: Path) -> None:
    daemon.env["SUBSTRATE_DAEMON"] = "off"
    said = _leave(daemon, tmp_path / "go", "echo 2 > late; touch " + str(tmp_path / "over"))
    assert b"the first recorded command after they have ended brings in" in said
    (tmp_path / "go").touch()
    until((tmp_path / "over").exists, "the end of the process")

    def has_arrived() -> bool:
        assert daemon.run("-c", "true").returncode == 0
        return (daemon.workspace / "late").exists()

    until(has_arrived, "its change")
