"""A project may be removed or moved right after a command: no process works in it any more, and it
does not come back."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import substrate
from substrate.system.linux.inotify import CREATE, DELETE, MOVED_FROM, MOVED_TO, Inotify
from tests.daemons import Daemon, daemon_in, pids_with, until

pytestmark = pytest.mark.needs("linux", "world-overlay")

#: With and without a change, and with one that makes directories.
_LINES = (
    "true",
    "echo {n} > made",
    "mkdir -p d/{n} && echo {n} > d/{n}/file",
    "cat a",
    "rm -f made",
)
_PAUSES_S = (0.0, 0.005, 0.02, 0.06)
#: After this what is done for a command and for the next one is done.
_SETTLED_S = 0.15


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        yield started.serve()


def _new_project(daemon: Daemon) -> Daemon:
    daemon.workspace.mkdir(exist_ok=True)
    (daemon.workspace / "a").write_text("0\n")
    return daemon


def _until_ahead(daemon: Daemon) -> None:
    """The next world is made, and so the rest is done, too."""
    for _ in range(20):  # another process's mount may end it
        assert daemon.run("-c", "echo x >> a").returncode == 0
        for _ in range(50):
            if any((world / "work" / "work").exists() for world in daemon.worlds()):
                return
            time.sleep(0.02)
    raise AssertionError("no world is made ahead")


def _removed(base: Path, rounds: range) -> list[str]:
    """What blocked removing a project right after a command, or reappeared."""
    found = []
    for number in rounds:
        project = Daemon(base, base / f"project{number}")
        _new_project(project)
        for n in range(1 + number % 3):
            line = _LINES[(number + n) % len(_LINES)].format(n=n)
            assert project.run("-c", line).returncode == 0
        time.sleep(_PAUSES_S[number % len(_PAUSES_S)])
        if number % 2:
            try:
                shutil.rmtree(project.workspace)
            except OSError as error:
                found.append(str(error))
        else:
            gone = subprocess.run(["rm", "-rf", project.workspace], stderr=subprocess.PIPE)
            found += gone.stderr.decode().splitlines()
        if number % 8 == 0:
            time.sleep(_SETTLED_S)
        found += [str(path) for path in project.workspace.rglob("*")]
    time.sleep(_SETTLED_S)
    return found + [str(path) for path in base.glob("project[0-9]*")]


@pytest.mark.usefixtures("daemon")
def test_it_goes_at_once_and_stays_away(tmp_path: Path) -> None:
    assert _removed(tmp_path, range(20)) == []


@pytest.mark.long
@pytest.mark.usefixtures("daemon")
def test_it_goes_at_once_and_stays_away_long(tmp_path: Path) -> None:
    assert _removed(tmp_path, range(400)) == []


def test_what_waits_for_the_next_command_is_never_in_it(daemon: Daemon) -> None:
    """Worlds come into the project for their command and leave before the answer."""
    _new_project(daemon)
    _until_ahead(daemon)
    worlds, store = (
        daemon.workspace / ".substrate-git" / "worlds",
        daemon.workspace / ".substrate-git",
    )
    watch = Inotify()
    try:
        for place in (worlds, store):
            watch.add(bytes(place), CREATE | DELETE | MOVED_FROM | MOVED_TO)
        for line in ("true", "echo 1 > a", "true"):
            assert daemon.run("-c", line).returncode == 0
            assert list(worlds.iterdir()) == []
            _until_ahead(daemon)
        happened = watch.read()
    finally:
        watch.close()
    assert happened, "commands had worlds"
    assert {event.name.split(b"_")[0] for event in happened} == {b"wld"}


def test_another_one_in_its_place_is_a_new_one(daemon: Daemon) -> None:
    _new_project(daemon)
    _until_ahead(daemon)
    for number in range(4):
        shutil.rmtree(daemon.workspace)
        _new_project(daemon)
        done = daemon.run("-c", f"cat a; ls; echo {number} > made")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"0\na\n", b"")
        said = json.loads(daemon.run("log", "--json").stdout)
        assert [one["command"] for one in said["commands"]][1:] == ["baseline"]
    assert daemon.run("fsck").returncode == 0


def test_one_moved_away_leaves_nothing_behind(daemon: Daemon, tmp_path: Path) -> None:
    _new_project(daemon)
    lines = []
    for number in range(6):
        line = f"echo {number} >> made"
        assert daemon.run("-c", line).returncode == 0
        lines.append(line)
        moved = Daemon(tmp_path, tmp_path / f"moved{number}")
        daemon.workspace.rename(moved.workspace)
        line = f"echo there {number} >> made"
        assert moved.run("-c", line).returncode == 0
        lines.append(line)
        time.sleep(_SETTLED_S)
        assert not daemon.workspace.exists()
        assert list((moved.workspace / ".substrate-git" / "worlds").iterdir()) == []
        daemon.workspace = moved.workspace
    said = json.loads(daemon.run("log", "--json").stdout)
    assert [one["command"] for one in said["commands"]] == [*lines[::-1], "baseline"]
    assert daemon.run("fsck").returncode == 0
    daemon.run("daemon", "stop")
    until(lambda: not daemon.worlds(), "the end of what waited")


def test_it_ends_when_its_code_is_removed(tmp_path: Path) -> None:
    """``pip uninstall``, or a virtual environment that is deleted, while a command runs."""
    site, signs = tmp_path / "site", tmp_path / "signs"
    signs.mkdir()
    shutil.copytree(Path(substrate.__file__).parent, site / "substrate")
    env = {"SUBSTRATE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(site)}
    with daemon_in(tmp_path, env) as daemon:
        daemon.serve()
        _until_ahead(daemon)
        # One with a world made ahead; one without, which ends by other code.
        other = Daemon(tmp_path, tmp_path / "other", daemon.env)
        other.workspace.mkdir()
        places = {"ahead": daemon, "first": other}
        running = {}
        for name, place in places.items():
            wait = f"touch {signs}/{name}; while ! [ -e {signs}/go ]; do sleep 0.1; done"
            running[name] = place.start("-c", f"{wait}; echo 2 > b")
            until((signs / name).exists, name)
        pid = daemon.pid
        shutil.rmtree(site)
        until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the end of the daemon")
        assert not daemon.socket.exists()
        (signs / "go").touch()
        for name, place in places.items():
            _, err = running[name].communicate(timeout=60)
            assert (running[name].returncode, err) == (0, b""), name
            assert (place.workspace / "b").read_text() == "2\n"
        until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all others")
        assert not list((tmp_path / "home").glob("crash/*"))
