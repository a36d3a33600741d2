"""The daemon of an ordinary user: held worlds across restarts, no forbidden fallback."""

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

from tests.contract.as_user import NOBODY
from tests.daemons import Daemon, daemon_in, pids_with, until

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
from substrate.cli.startup import substrate as program
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
sys.exit(program())
"""


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """No daemon yet; all of it belongs to the other user."""
    base = Path(tempfile.mkdtemp(prefix="substrate-daemon-"))
    home = base / "home"
    home.mkdir()
    env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate"),
           "PATH": "/usr/local/bin:/usr/bin:/bin"}  # fmt: skip
    with daemon_in(base, env) as made:
        made.program = [sys.executable, "-c", _AS_USER, str(NOBODY)]
        for path in (base, home, made.workspace):
            os.chown(path, NOBODY, NOBODY)
        yield made
    shutil.rmtree(base)


def serve(daemon: Daemon) -> None:
    """As `Daemon.serve`, without asking it: each call of ours costs an interpreter's start."""
    before = daemon.pid
    daemon.start("daemon", "serve", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: daemon.pid not in (0, before) and (daemon.directory / "door.sock").exists())


def worlds(daemon: Daemon) -> list[dict[str, object]]:
    done = daemon.run("world", "list", "--json")
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, object]] = json.loads(done.stdout)["worlds"]
    return found


def is_over(pid: int) -> bool:
    """Ended; it may wait to be buried by the test, which started it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_commands_go_through_the_daemon_and_run_in_worlds(daemon: Daemon) -> None:
    serve(daemon)
    done = daemon.run("--world", "-c", "id -u; echo x > new; mkdir d; echo y > d/y")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"65534\n", b"")
    assert daemon.serves()
    assert (daemon.workspace / "d" / "y").stat().st_uid == NOBODY
    span = daemon.completed()[0]
    assert span["isolation"]["strategy"] == "overlay"
    assert span["changed_files"] == ["d/y", "new"]
    assert os.stat(f"/proc/{daemon.pid}").st_uid == NOBODY
    assert daemon.run("undo").returncode == 0
    assert not (daemon.workspace / "new").exists()


def test_it_watches(daemon: Daemon) -> None:
    serve(daemon)
    (daemon.workspace / "a").write_text("1\n")
    os.chown(daemon.workspace / "a", NOBODY, NOBODY)
    assert daemon.run("-c", "true").returncode == 0

    def is_watched() -> bool:
        assert daemon.run("-c", "true").returncode == 0
        return bool(daemon.completed()[-1]["base_known"] == "watched")

    until(is_watched, "watching")
    with (daemon.workspace / "a").open("a") as file:
        file.write("by hand\n")
    assert daemon.run("-c", "echo x > b").returncode == 0
    assert daemon.completed()[-1]["base_known"] == "watched"
    newest = json.loads(daemon.run("log", "--json", "--limit", "2").stdout)["commands"]
    assert [entry["kind"] for entry in newest] == ["command", "external"]
    assert daemon.run("run", "--live", "--", "sh", "-c", "echo y > c").returncode == 0
    assert daemon.completed()[-1]["changed_files"] == ["c"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_held_worlds_outlive_their_daemon(daemon: Daemon, end: str) -> None:
    serve(daemon)
    assert daemon.run("--hold", "-c", "echo 1 > a; mkdir d; chmod 0 d").returncode == 0
    first = daemon.pid
    if end == "stop":
        daemon.run("daemon", "stop")
    else:
        os.kill(first, signal.SIGKILL)
    until(lambda: is_over(first), "its end")
    [world] = worlds(daemon)
    assert world["state"] == "held"
    serve(daemon)
    assert daemon.pid != first
    [world] = worlds(daemon)
    assert daemon.run("--world", "-c", "echo 2 > b").returncode == 0
    done = daemon.run("world", "apply", str(world["world_id"]))
    assert done.returncode == 0, done.stderr.decode()
    assert (daemon.workspace / "a").read_text() == "1\n"
    assert (daemon.workspace / "d").stat().st_mode & 0o777 == 0
    assert (daemon.workspace / "b").exists()
    assert worlds(daemon) == []


def test_a_running_command_outlives_its_daemon(daemon: Daemon) -> None:
    serve(daemon)
    mark = daemon.workspace.parent / "home" / "up"
    line = f"echo 1 > a; touch {mark}; while test -e {mark}; do sleep 0.05; done; echo 2 > b"
    running = daemon.start("-c", line)
    until(mark.exists, "the command")
    first = daemon.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: is_over(first), "the daemon's end")
    serve(daemon)
    assert [world["state"] for world in worlds(daemon)] == ["running"]
    mark.unlink()
    running.wait(60)
    assert running.returncode == 0
    assert (daemon.workspace / "b").read_text() == "2\n"
    assert worlds(daemon) == []


class Deaf:
    """In the daemon's place: takes calls and says nothing."""

    def __init__(self, daemon: Daemon) -> None:
        daemon.directory.parent.mkdir(exist_ok=True)
        daemon.directory.mkdir(mode=0o700)
        os.chown(daemon.directory.parent, NOBODY, NOBODY)
        os.chown(daemon.directory, NOBODY, NOBODY)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(daemon.directory / "door.sock"))
        os.chown(daemon.directory / "door.sock", NOBODY, NOBODY)
        # The kernel reports the user that called `listen` as the peer.
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
def deaf(daemon: Daemon) -> Iterator[Deaf]:
    made = Deaf(daemon)
    yield made
    made.close()


_WARNING = b"substrate: warn: shell world-agent exec failed, running direct\n"


def test_falling_back_is_reported_once(daemon: Daemon, deaf: Deaf) -> None:
    done = daemon.run("-c", "echo 1 > a")
    assert deaf.calls == 1
    assert (done.returncode, done.stderr) == (0, _WARNING), os.listdir(daemon.directory)
    done = daemon.run("-c", "echo 2 > a")
    assert (done.returncode, done.stderr) == (0, b"")
    assert deaf.calls == 2
    assert (daemon.workspace / "a").read_text() == "2\n"


@pytest.mark.parametrize("how", ["--world", "--isolate full", "env"])
def test_a_required_world_is_had_without_a_word(daemon: Daemon, deaf: Deaf, how: str) -> None:
    words = [] if how == "env" else how.split()
    env = {**daemon.env, **({"SUBSTRATE_WORLD": "enabled"} if how == "env" else {})}
    done = daemon.run(*words, "-c", "echo 1 > a", env=env)
    assert done.returncode == 0
    assert _WARNING not in done.stderr
    assert deaf.calls == 1
    assert daemon.completed()[-1]["isolation"]["strategy"] == "overlay"


@pytest.mark.parametrize("through", ["daemon", "deaf"])
def test_a_required_world_that_cannot_be_had_runs_nothing(
    daemon: Daemon, through: str, request: pytest.FixtureRequest
) -> None:
    """Where even a copy is refused, by asking for the kernel's overlay alone."""
    if through == "daemon":
        serve(daemon)
    else:
        request.getfixturevalue("deaf")
    os.chown(daemon.workspace, NOBODY, 0)  # a group that is not in the world
    env = {**daemon.env, "SUBSTRATE_WORLD_STRATEGY": "overlay"}
    done = daemon.run("--world", "-c", f"touch a {daemon.workspace.parent}/home/ran", env=env)
    assert done.returncode == 125
    assert b"no world of tier workspace can be had" in done.stderr
    assert _WARNING not in done.stderr
    assert not (daemon.workspace / "a").exists()
    assert not (daemon.workspace.parent / "home" / "ran").exists()
    done = daemon.run("-c", "touch a", env=env)
    assert done.returncode == 0, "not required: it runs on the real files, and that is written down"
    assert daemon.completed()[-1]["isolation"]["strategy"] == "direct"
    assert "group" in daemon.completed()[-1]["isolation"]["reason"]


def test_nothing_is_left(daemon: Daemon) -> None:
    serve(daemon)
    assert daemon.run("-c", "echo 1 > a; (sleep 0.1; echo 2 > b) &").returncode == 0
    daemon.run("daemon", "stop")
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all")
