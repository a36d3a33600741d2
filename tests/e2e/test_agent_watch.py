"""The agent watches: what others change is recorded as theirs, in order, and costs no scan."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import PATIENCE_S, Agent, agent_in, pids_with, until

pytestmark = [pytest.mark.needs("linux"), pytest.mark.needs("overlay")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("shared")
    with agent_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as agent:
        agent.serve()
        yield base


@pytest.fixture
def agent(shared: Path, tmp_path: Path) -> Agent:
    """The shared agent, watching a workspace of the test's own."""
    workspace = tmp_path / "project"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/a").write_bytes(b"one\n")
    (workspace / "src/b").write_bytes(b"one\n")
    found = Agent(shared, workspace)
    done(found, "true")
    until(lambda: watching(found)["watched"], "watching")
    return found


def done(agent: Agent, command: str, *options: str) -> dict[str, Any]:
    """Run it; its span."""
    ran = agent.run("run", *options, "--", "sh", "-c", command)
    assert ran.returncode == 0, ran.stderr
    return agent.completed()[-1]


def watching(agent: Agent) -> dict[str, Any]:
    """What the watcher says about the agent's workspace."""
    state = agent.state()
    assert state is not None
    for one in state["watching"]:
        if one["workspace"] == str(agent.workspace):
            return dict(one)
    return {"watched": False, "suspects": 0, "why_not": "never heard of"}


def log(agent: Agent) -> list[dict[str, Any]]:
    """Oldest first."""
    said = agent.run("log", "--json")
    return list(reversed(json.loads(said.stdout)["commands"]))


def kinds(agent: Agent) -> list[str]:
    return [entry["kind"] for entry in log(agent)]


def changed(agent: Agent, entry: dict[str, Any]) -> set[str]:
    said = json.loads(agent.run("diff", entry["command_id"], "--json").stdout)
    return {one["path"] for one in said["files"]}


def is_settled(agent: Agent) -> bool:
    found = watching(agent)
    return bool(found["watched"]) and found["suspects"] == 0


def test_an_edit_before_a_command_is_recorded_before_it(agent: Agent) -> None:
    (agent.workspace / "src/a").write_bytes(b"by hand\n")
    (agent.workspace / "fresh/deep").mkdir(parents=True)
    (agent.workspace / "fresh/deep/c").write_bytes(b"by hand\n")
    span = done(agent, "echo two >> src/a; echo two > src/b")
    assert span["base_known"] == "watched"
    assert kinds(agent) == ["baseline", "command", "external", "command"]
    *_, outside, command = log(agent)
    assert changed(agent, outside) == {"src/a", "fresh/deep/c"}
    assert changed(agent, command) == {"src/a", "src/b"}
    assert command["substrate_git_commit"] == span["substrate_git_commit"]
    agent.run("undo")
    assert (agent.workspace / "src/a").read_bytes() == b"by hand\n"


def test_edits_of_a_quiet_morning_are_recorded_without_a_command(agent: Agent) -> None:
    (agent.workspace / "src/a").write_bytes(b"first\n")
    until(lambda: len(log(agent)) == 3, "the first edit in the log")
    (agent.workspace / "src/b").unlink()
    until(lambda: len(log(agent)) == 4, "the second one")
    assert kinds(agent) == ["baseline", "command", "external", "external"]
    _, _, first, second = log(agent)
    assert (changed(agent, first), changed(agent, second)) == ({"src/a"}, {"src/b"})
    assert first["ts"] < second["ts"]
    assert watching(agent)["recorded"] >= second["ts"]


def test_an_edit_under_one_name_of_a_file_is_found_under_the_other(agent: Agent) -> None:
    os.link(agent.workspace / "src/a", agent.workspace / "other-name")
    done(agent, "true")
    until(lambda: is_settled(agent), "the end of its looking")
    with (agent.workspace / "other-name").open("ab") as file:
        file.write(b"more\n")
    until(lambda: len(log(agent)) == 5, "the edit in the log")
    assert changed(agent, log(agent)[-1]) == {"src/a", "other-name"}


def test_our_own_changes_are_nobodys(agent: Agent) -> None:
    """A command's change comes into the tree, and an undo's: the watcher sees both."""
    span = done(agent, "mkdir -p made/by; seq 300 | xargs -I_ touch made/by/_; rm src/b")
    assert span["base_known"] == "watched"
    done(agent, "chmod 700 src; echo x >> src/a")
    agent.run("undo")
    done(agent, "true", "--no-world")
    until(lambda: is_settled(agent), "the end of its looking")
    assert kinds(agent) == ["baseline", "command", "command", "command", "undo", "command"]


def test_a_command_on_the_real_files_is_not_an_outside_edit(agent: Agent) -> None:
    go = agent.workspace / "go"
    os.mkfifo(go)
    script = "echo direct > src/a; touch made; cat go > /dev/null"
    running = agent.start("run", "--no-world", "--", "sh", "-c", script)
    until((agent.workspace / "made").exists, "its change")
    assert done(agent, "true")["base_known"] == "assumed", "whose edits these are is not known yet"
    go.write_bytes(b"now")
    running.communicate(timeout=60)
    assert running.returncode == 0
    direct = next(entry for entry in log(agent) if "echo direct" in entry["command"])
    assert {"src/a", "made"} <= changed(agent, direct)
    until(lambda: is_settled(agent), "the end of its looking")
    assert "external" not in [e["kind"] for e in log(agent) if "src/a" in changed(agent, e)]


def test_other_rules_and_a_tree_that_moved_are_watched_anew(agent: Agent) -> None:
    (agent.workspace / ".substrateignore").write_bytes(b"*.log\n")
    (agent.workspace / "src/x.log").write_bytes(b"left out\n")
    (agent.workspace / "src/y").write_bytes(b"not left out\n")
    until(lambda: is_settled(agent) and len(log(agent)) == 3, "the new rules")
    assert changed(agent, log(agent)[-1]) == {".substrateignore", "src/y"}
    (agent.workspace / "src/z.log").write_bytes(b"left out\n")
    assert done(agent, "true")["base_known"] == "watched"
    assert len(log(agent)) == 4

    elsewhere = agent.workspace.with_name("elsewhere")
    agent.workspace.rename(elsewhere)
    agent.workspace.mkdir()
    assert done(agent, "true")["base_known"] == "scanned", "another place under the same name"
    moved = Agent(agent.directory.parents[1], elsewhere)
    assert done(moved, "true")["base_known"] == "assumed"
    until(lambda: watching(moved)["watched"], "watching under the new name")


def test_who_is_not_ours_is_not_answered(agent: Agent) -> None:
    """Whoever could say that its edits are recorded could hide them."""
    asking = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.connect(sys.argv[1]); s.send(b'S'); print(len(s.recv(65536)))"
    )
    words = [sys.executable, "-c", asking, str(agent.directory / "watch.sock")]
    assert subprocess.run(words, capture_output=True, check=True).stdout != b"0\n"
    sandboxed = subprocess.run(
        ["setpriv", "--no-new-privs", *words], capture_output=True, check=False
    )
    assert sandboxed.stdout in (b"", b"0\n"), "closed without a word"
    assert (agent.directory / "watch.sock").stat().st_mode & 0o777 == 0o600
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as rude:
        rude.connect(str(agent.directory / "watch.sock"))
        rude.send(b"\xff" * 5000)
        assert rude.recv(10) == b""
    until(lambda: done(agent, "true")["base_known"] == "watched", "an answer to who is ours")


def test_a_watcher_that_dies_is_replaced_and_one_whose_agent_dies_goes(tmp_path: Path) -> None:
    with agent_in(tmp_path) as own:
        own.serve()
        done(own, "true")
        until(lambda: watching(own)["watched"], "watching")
        state = own.state()
        assert state is not None
        os.kill(state["watcher_pid"], signal.SIGKILL)
        (own.workspace / "f").write_bytes(b"meanwhile\n")
        assert done(own, "true")["base_known"] in ("assumed", "watched")
        until(lambda: done(own, "true")["base_known"] == "watched", "another watcher")
        assert ["f"] in [sorted(changed(own, e)) for e in log(own) if e["kind"] == "external"]
        os.kill(own.pid, signal.SIGKILL)
        until(lambda: not pids_with(f"SUBSTRATE_SOCKET={own.socket}"), "the end of all of it")


def test_an_editor_and_three_agents_at_once(agent: Agent) -> None:
    """Each has files of its own: nobody's work is taken for another's, and none is lost."""
    root = agent.workspace
    for name in ("by-hand", "c0", "c1", "c2"):
        (root / name).mkdir()
    stop = threading.Event()
    saved: dict[str, bytes] = {}

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name, text = f"by-hand/f{number % 5}", b"%d\n" % number
            if number % 3:
                (root / name).write_bytes(text)
            else:  # as most editors do it
                (root / "by-hand/.new").write_bytes(text)
                (root / "by-hand/.new").rename(root / name)
            saved[name] = text
            stop.wait(0.03)

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for round_ in range(4):
            calls = [
                agent.start(
                    "--session", f"s-{n}", "-c", f"echo {round_} >> c{n}/log; date > c{n}/d"
                )
                for n in range(3)
            ]
            for call in calls:
                assert call.communicate(timeout=PATIENCE_S)[1] == b""
                assert call.returncode == 0
    finally:
        stop.set()
        editor.join()
    until(lambda: is_settled(agent), "the end of its looking")
    for entry in log(agent)[1:]:
        tops = {path.split("/")[0] for path in changed(agent, entry)}
        if entry["kind"] == "external":
            assert tops <= {"by-hand", "c0", "c1", "c2"}
            assert not any(path.startswith("c") for path in changed(agent, entry) if "/" in path)
        elif tops:
            assert tops == {"c" + entry["session_id"].removeprefix("s-")}
    assert {name: (root / name).read_bytes() for name in saved} == saved
    assert [(root / f"c{n}/log").read_text() for n in range(3)] == ["0\n1\n2\n3\n"] * 3
    said = json.loads(agent.run("status", "--json").stdout)
    assert said["outside_changes"] == []
    assert agent.run("fsck").returncode == 0
