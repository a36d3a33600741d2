"""One project used from two pid namespaces: the host's, and a container's that shares its files."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.daemons import Daemon, daemon_in, pids_with, until

pytestmark = pytest.mark.needs("overlay", "root")

#: A container with the project and the home mounted: a pid and a mount namespace of its own.
CONTAINER = ("unshare", "-pf", "--mount-proc", "--kill-child")


class Both:
    """The project, `substrate` on the host, and a way to start it in a container."""

    def __init__(self, base: Path) -> None:
        self.project, self.signs = base / "project", base / "signs"
        self.project.mkdir()
        self.signs.mkdir()
        (self.project / "a").write_text("1\n")
        self.env = {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")}
        self.host = Program(self.project, self.env)
        self.started: list[subprocess.Popen[bytes]] = []
        self.host.sh("true")

    def inside(self, *words: str) -> subprocess.Popen[bytes]:
        return self.inside_run(sys.executable, "-m", "substrate", *words)

    def inside_run(self, *argv: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*CONTAINER, *argv], cwd=self.project, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "SUBSTRATE_DAEMON": "off", **self.env},
        )  # fmt: skip
        self.started.append(process)
        return process

    def wait_for(self, sign: str) -> str:
        """A line of shell: say that it got here, and wait for `give`."""
        here = self.signs / sign
        return f"touch {here}.began; while ! [ -e {here}.go ]; do sleep 0.05; done"

    def began(self, sign: str) -> None:
        until((self.signs / f"{sign}.began").exists, sign)

    def give(self, sign: str) -> None:
        (self.signs / f"{sign}.go").touch()

    def log(self) -> dict[str, object]:
        return {one["command"]: one for one in self.host.json("log")["commands"]}

    def is_sound(self) -> None:
        self.host("fsck").went_well()
        self.host.sh("echo more > more.txt")
        assert (self.project / "more.txt").exists()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finished(process: subprocess.Popen[bytes]) -> None:
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()


@pytest.mark.parametrize("option", ["--world", "--no-world"])
def test_a_command_in_a_container_is_left_to_itself(both: Both, option: str) -> None:
    line = f"echo early > early.txt; {both.wait_for('one')}; echo 2 > two.txt"
    running = both.inside(option, "-c", line)
    both.began("one")
    both.host.sh("true")
    both.host.sh("echo host > host.txt")
    states = [one["state"] for one in both.host.json("world", "list")["worlds"]]
    assert states == (["running"] if option == "--world" else [])
    both.give("one")
    finished(running)
    assert (both.project / "early.txt").read_text() == "early\n"
    assert (both.project / "two.txt").read_text() == "2\n"
    assert both.log()[line]["exit"] == 0  # type: ignore[index]
    assert both.host.json("world", "list")["worlds"] == []
    both.is_sound()


def test_a_command_on_the_host_is_left_to_itself(both: Both) -> None:
    """A container does not see the host's processes at all."""
    line = f"echo early > early.txt; {both.wait_for('one')}; echo 2 > two.txt"
    running = subprocess.Popen(
        [sys.executable, "-m", "substrate", "-c", line], cwd=both.project,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "SUBSTRATE_DAEMON": "off", **both.env},
    )  # fmt: skip
    both.began("one")
    finished(both.inside("-c", "echo inside > inside.txt"))
    both.give("one")
    finished(running)
    assert {one.name for one in both.project.glob("*.txt")} == {
        "early.txt", "two.txt", "inside.txt",
    }  # fmt: skip
    assert both.log()[line]["exit"] == 0  # type: ignore[index]
    both.is_sound()


def test_a_killed_container_leaves_its_world(both: Both) -> None:
    running = both.inside("-c", f"echo early > early.txt; {both.wait_for('one')}")
    both.began("one")
    running.send_signal(signal.SIGKILL)
    running.communicate()
    both.host.sh("true")
    (world,) = both.host.json("world", "list")["worlds"]
    assert world["state"] == "crashed"
    both.host("world", "apply", world["world_id"]).went_well()
    assert (both.project / "early.txt").read_text() == "early\n"
    both.is_sound()


def test_what_a_command_left_running_in_a_container_is_waited_for(both: Both) -> None:
    substrate = f"{sys.executable} -m substrate"
    late = f"({both.wait_for('late')}; echo late > late.txt) > /dev/null 2>&1 &"
    container = both.inside_run(
        "sh", "-c", f"{substrate} -c '{late}' && {both.wait_for('container')}"
    )
    both.began("late")
    both.began("container")
    both.host.sh("echo host > host.txt")
    (world,) = both.host.json("world", "list")["worlds"]
    assert world["state"] == "detached"
    assert both.host("world", "apply", world["world_id"]).status == 5, "it is still at work"
    both.give("late")

    def has_arrived() -> bool:
        both.host.sh("true")
        return (both.project / "late.txt").exists()

    until(has_arrived, "what it wrote")
    assert both.host.json("world", "list")["worlds"] == []
    both.give("container")
    finished(container)
    both.is_sound()


def test_worlds_made_ahead_on_the_host_are_not_swept(tmp_path: Path) -> None:
    """A container shares the home, and would sweep there what no process that it sees has made."""
    home = tmp_path / "home"
    with daemon_in(tmp_path, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(home)}) as daemon:
        daemon.run("-c", "echo 1 > a")
        daemon.serve()
        daemon.run("-c", "true")
        sweep = "import pathlib, sys; from substrate.world.prewarm import parked_layers as aside;"
        sweep += "aside.sweep(pathlib.Path(sys.argv[1]))"
        argv = [*CONTAINER, sys.executable, "-c", sweep, str(home / "worlds")]
        with _worlds_ahead_at_rest(daemon) as before:
            assert subprocess.run(argv, check=False).returncode == 0
            assert _ahead(daemon) == before


@contextmanager
def _worlds_ahead_at_rest(daemon: Daemon) -> Iterator[list[str]]:
    """The worlds made ahead, while the daemon and its children are stopped: they are alive, but
    make and remove no worlds."""
    stopped: set[int] = set()
    try:
        while True:
            until(lambda: _ahead(daemon), "a world made ahead")
            # A child that is forked while we look is found by the next look.
            while new := set(pids_with(f"SUBSTRATE_SOCKET={daemon.socket}")) - stopped:
                stopped |= new
                _signal_all(new, signal.SIGSTOP)
            if found := _ahead(daemon):
                yield found
                return
            _signal_all(stopped, signal.SIGCONT)
            stopped.clear()
    finally:
        _signal_all(stopped, signal.SIGCONT)


def _signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _ahead(daemon: Daemon) -> list[str]:
    return sorted(one.name for one in daemon.worlds() if one.name.startswith("ahead-"))


@pytest.mark.parametrize("option", ["--world", "--no-world"])
@pytest.mark.parametrize("more", ["echo 2 > two.txt", "true"])
def test_a_command_taken_for_dead_has_the_last_word(both: Both, option: str, more: str) -> None:
    """As on a VM's share, where no lock is seen, and with versions that went by the pid."""
    line = f"echo early > early.txt; {both.wait_for('one')}; {more}"
    running = both.inside(option, "-c", line)
    both.began("one")
    with closing(sqlite3.connect(both.project / ".substrate-git/index/history.db")) as ledger:
        token = "json_set(payload, '$.alive', '00000000000001')"
        ledger.execute(f"UPDATE intents SET payload = {token}")
        ledger.commit()
    both.host.sh("true")
    both.give("one")
    finished(running)
    assert (both.project / "early.txt").read_text() == "early\n"
    assert (both.project / "two.txt").exists() == (more != "true")
    exits = [one["exit"] for one in both.host.json("log")["commands"] if one["command"] == line]
    # On the real files what had changed by then is an entry of its own.
    assert exits == ([0] if option == "--world" else [0, None])
    assert both.host.json("world", "list")["worlds"] == []
    both.is_sound()
