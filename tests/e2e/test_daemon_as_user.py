"""The agent of an ordinary user: held worlds across restarts, no fallback where none is allowed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import Agent, agent_in, pids_with, until
from tests.contract.as_user import NOBODY

pytestmark = pytest.mark.needs("linux", "other-user", "world-overlay")

#: Everything is imported while still root, because the other user may not reach the interpreter.
#: Then the process is that user's in all respects: its entries in /proc, too.
_AS_USER = """
import ctypes, encodings.ascii, encodings.idna, encodings.latin_1, importlib, json, os, pkgutil
import hashlib, pwd, resource, signal, socket, sqlite3, stat, sys, termios, pty, tty, zlib
import substrate
for module in pkgutil.walk_packages(substrate.__path__, "substrate."):
    if module.name.startswith(("substrate.graph", "substrate.packs", "substrate.cli.ctx")):
        continue
    try:
        importlib.import_module(module.name if "__main__" not in module.name else "substrate")
    except ImportError:
        pass
from substrate.cli.entry import substrate as program
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
sys.exit(program())
"""


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """No agent yet; all of it belongs to the other user."""
    base = Path(tempfile.mkdtemp(prefix="substrate-agent-"))
    home = base / "home"
    home.mkdir()
    env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate"),
           "PATH": "/usr/local/bin:/usr/bin:/bin"}  # fmt: skip
    with agent_in(base, env) as made:
        made.program = [sys.executable, "-c", _AS_USER, str(NOBODY)]
        for path in (base, home, made.workspace):
            os.chown(path, NOBODY, NOBODY)
        yield made
    shutil.rmtree(base)


def serve(agent: Agent) -> None:
    """As `Agent.serve`, without asking it: each call of ours costs an interpreter's start."""
    before = agent.pid
    agent.start("agent", "serve", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: agent.pid not in (0, before) and (agent.directory / "door.sock").exists())


def worlds(agent: Agent) -> list[dict[str, object]]:
    done = agent.run("world", "list", "--json")
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, object]] = json.loads(done.stdout)["worlds"]
    return found


def is_over(pid: int) -> bool:
    """Ended; it may wait to be buried by the test, which started it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_commands_go_through_the_agent_and_run_in_worlds(agent: Agent) -> None:
    serve(agent)
    done = agent.run("--world", "-c", "id -u; echo x > new; mkdir d; echo y > d/y")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"65534\n", b"")
    assert agent.serves()
    assert (agent.workspace / "d" / "y").stat().st_uid == NOBODY
    span = agent.completed()[0]
    assert span["isolation"]["strategy"] == "overlay"
    assert span["changed_files"] == ["d/y", "new"]
    assert os.stat(f"/proc/{agent.pid}").st_uid == NOBODY
    assert agent.run("undo").returncode == 0
    assert not (agent.workspace / "new").exists()


def test_it_watches(agent: Agent) -> None:
    serve(agent)
    (agent.workspace / "a").write_text("1\n")
    os.chown(agent.workspace / "a", NOBODY, NOBODY)
    assert agent.run("-c", "true").returncode == 0

    def is_watched() -> bool:
        assert agent.run("-c", "true").returncode == 0
        return bool(agent.completed()[-1]["base_known"] == "watched")

    until(is_watched, "watching")
    with (agent.workspace / "a").open("a") as file:
        file.write("by hand\n")
    assert agent.run("-c", "echo x > b").returncode == 0
    assert agent.completed()[-1]["base_known"] == "watched"
    newest = json.loads(agent.run("log", "--json", "--limit", "2").stdout)["commands"]
    assert [entry["kind"] for entry in newest] == ["command", "external"]
    assert agent.run("run", "--live", "--", "sh", "-c", "echo y > c").returncode == 0
    assert agent.completed()[-1]["changed_files"] == ["c"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_held_worlds_outlive_their_agent(agent: Agent, end: str) -> None:
    serve(agent)
    assert agent.run("--hold", "-c", "echo 1 > a; mkdir d; chmod 0 d").returncode == 0
    first = agent.pid
    if end == "stop":
        agent.run("agent", "stop")
    else:
        os.kill(first, signal.SIGKILL)
    until(lambda: is_over(first), "its end")
    [world] = worlds(agent)
    assert world["state"] == "held"
    serve(agent)
    assert agent.pid != first
    [world] = worlds(agent)
    assert agent.run("--world", "-c", "echo 2 > b").returncode == 0
    done = agent.run("world", "apply", str(world["world_id"]))
    assert done.returncode == 0, done.stderr.decode()
    assert (agent.workspace / "a").read_text() == "1\n"
    assert (agent.workspace / "d").stat().st_mode & 0o777 == 0
    assert (agent.workspace / "b").exists()
    assert worlds(agent) == []


def test_a_running_command_outlives_its_agent(agent: Agent) -> None:
    serve(agent)
    mark = agent.workspace.parent / "home" / "up"
    line = f"echo 1 > a; touch {mark}; while test -e {mark}; do sleep 0.05; done; echo 2 > b"
    running = agent.start("-c", line)
    until(mark.exists, "the command")
    first = agent.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: is_over(first), "the agent's end")
    serve(agent)
    assert [world["state"] for world in worlds(agent)] == ["running"]
    mark.unlink()
    running.wait(60)
    assert running.returncode == 0
    assert (agent.workspace / "b").read_text() == "2\n"
    assert worlds(agent) == []


class Deaf:
    """In the agent's place: takes calls and says nothing."""

    def __init__(self, agent: Agent) -> None:
        agent.directory.parent.mkdir(exist_ok=True)
        agent.directory.mkdir(mode=0o700)
        os.chown(agent.directory.parent, NOBODY, NOBODY)
        os.chown(agent.directory, NOBODY, NOBODY)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(agent.directory / "door.sock"))
        os.chown(agent.directory / "door.sock", NOBODY, NOBODY)
        # Who listens is who answers, for the kernel.
        os.seteuid(NOBODY)
        try:
            self._socket.listen()
        finally:
            os.seteuid(0)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.calls = 0

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            connection.recv(1)
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def deaf(agent: Agent) -> Iterator[Deaf]:
    made = Deaf(agent)
    yield made
    made.close()


_WARNING = b"substrate: warn: shell world-agent exec failed, running direct\n"


def test_falling_back_is_said_once(agent: Agent, deaf: Deaf) -> None:
    done = agent.run("-c", "echo 1 > a")
    assert deaf.calls == 1
    assert (done.returncode, done.stderr) == (0, _WARNING), os.listdir(agent.directory)
    done = agent.run("-c", "echo 2 > a")
    assert (done.returncode, done.stderr) == (0, b"")
    assert deaf.calls == 2
    assert (agent.workspace / "a").read_text() == "2\n"


@pytest.mark.parametrize("how", ["--world", "--isolate full", "env"])
def test_a_required_world_is_had_without_a_word(agent: Agent, deaf: Deaf, how: str) -> None:
    words = [] if how == "env" else how.split()
    env = {**agent.env, **({"SUBSTRATE_WORLD": "enabled"} if how == "env" else {})}
    done = agent.run(*words, "-c", "echo 1 > a", env=env)
    assert done.returncode == 0
    assert _WARNING not in done.stderr
    assert deaf.calls == 1
    assert agent.completed()[-1]["isolation"]["strategy"] == "overlay"


@pytest.mark.parametrize("through", ["agent", "deaf"])
def test_a_required_world_that_cannot_be_had_runs_nothing(
    agent: Agent, through: str, request: pytest.FixtureRequest
) -> None:
    """Where even a copy is refused, by asking for the kernel's overlay alone."""
    if through == "agent":
        serve(agent)
    else:
        request.getfixturevalue("deaf")
    os.chown(agent.workspace, NOBODY, 0)  # a group that is not in the world
    env = {**agent.env, "SUBSTRATE_WORLD_STRATEGY": "overlay"}
    done = agent.run("--world", "-c", f"touch a {agent.workspace.parent}/home/ran", env=env)
    assert done.returncode == 125
    assert b"no world of tier workspace can be had" in done.stderr
    assert _WARNING not in done.stderr
    assert not (agent.workspace / "a").exists()
    assert not (agent.workspace.parent / "home" / "ran").exists()
    done = agent.run("-c", "touch a", env=env)
    assert done.returncode == 0, "not required: it runs on the real files, and that is written down"
    assert agent.completed()[-1]["isolation"]["strategy"] == "direct"
    assert "group" in agent.completed()[-1]["isolation"]["reason"]


def test_nothing_is_left(agent: Agent) -> None:
    serve(agent)
    assert agent.run("-c", "echo 1 > a; (sleep 0.1; echo 2 > b) &").returncode == 0
    agent.run("agent", "stop")
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={agent.socket}"), "the end of all")
