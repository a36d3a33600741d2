"""kill -9 of client, daemon, runner or command at random moments: the next command works, history
is whole and has the workspace as it is, and no process or temporary file is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_S, Daemon, daemon_in, pids_with, until

pytestmark = pytest.mark.needs("linux")

_COMMAND = "for i in 1 2 3; do echo {n} > f$i; sleep 0.02; done"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        yield started.serve()


def _round(daemon: Daemon, n: int, chance: random.Random) -> str:
    victim = chance.choice(["client", "daemon", "runner", "command"])
    client = daemon.start("-c", _COMMAND.format(n=n))
    time.sleep(chance.uniform(0, 0.25))
    for pid in _victims(daemon, victim, client.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    client.communicate(timeout=PATIENCE_S)
    until(lambda: not _of_commands(daemon), f"the end of round {n}, {victim}")
    done = daemon.run("-c", f"echo {n} > last")
    assert done.returncode == 0, f"after round {n}, {victim}: {done.stderr.decode()}"
    return victim


def _victims(daemon: Daemon, victim: str, client: int) -> list[int]:
    if victim == "client":
        return [client]
    if victim == "daemon":
        return [daemon.pid] if daemon.pid else []
    # By the machine's own numbers: inside a world a process may be called 3, as one out here is.
    if victim == "runner":
        return daemon.runners()[:1]
    return [pid for pid in _of_commands(daemon) if _name(pid) in ("bash", "sleep")][:1]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _of_commands(daemon: Daemon) -> list[int]:
    """Processes of commands and runners: those whose working directory is the workspace."""
    found = []
    for pid in pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"):
        try:
            # By name: in a world the directory is another one.
            if os.readlink(f"/proc/{pid}/cwd") == str(daemon.workspace):
                found.append(pid)
        except OSError:
            continue
    return found


def _rounds(daemon: Daemon, count: int, seed: int) -> None:
    chance = random.Random(seed)
    victims = {_round(daemon, n, chance) for n in range(count)}
    assert victims == {"client", "daemon", "runner", "command"}, "each was struck"
    fsck = daemon.run("fsck")
    assert fsck.returncode == 0, fsck.stderr.decode()
    git = ["git", f"--git-dir={daemon.workspace}/.substrate-git/.git"]
    for path in daemon.workspace.glob("[fl]*"):
        kept = subprocess.run([*git, "show", f"HEAD:{path.name}"], capture_output=True, check=True)
        assert kept.stdout == path.read_bytes()
    assert json.loads(daemon.run("log", "--json", "--limit", "1").stdout)["commands"]
    known = {
        "door.sock",
        "lock",
        "log",
        "start",
        "start.lock",
        "state.json",
        "warned",
        "watch.sock",
    }
    # A daemon that starts rehearses for a moment, and cleans up after one that was killed at it.
    until(lambda: {path.name for path in daemon.directory.iterdir()} <= known, "tidiness")
    assert [path.name for path in daemon.workspace.iterdir() if "tmp" in path.name] == []


def test_kills_at_random_moments(daemon: Daemon) -> None:
    _rounds(daemon, 16, seed=4)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_five_hundred_kills(daemon: Daemon) -> None:
    _rounds(daemon, 500, seed=5)
