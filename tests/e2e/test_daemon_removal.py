"""A project may be removed or moved right after a command: nobody is at work in it any more, and it
does not come back."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.system.linux.inotify import CREATE, DELETE, MOVED_FROM, MOVED_TO, Inotify
from tests.agents import Agent, agent_in, until

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
def agent(tmp_path: Path) -> Iterator[Agent]:
    with agent_in(tmp_path) as started:
        yield started.serve()


def _new_project(agent: Agent) -> Agent:
    agent.workspace.mkdir(exist_ok=True)
    (agent.workspace / "a").write_text("0\n")
    return agent


def _until_ahead(agent: Agent) -> None:
    """The next world is made, and so the rest is done, too."""
    for _ in range(20):  # somebody's mount may put an end to it
        assert agent.run("-c", "echo x >> a").returncode == 0
        for _ in range(50):
            if any((world / "work" / "work").exists() for world in agent.worlds()):
                return
            time.sleep(0.02)
    raise AssertionError("no world is made ahead")


def _removed(base: Path, rounds: range) -> list[str]:
    """What was in the way of those who removed a project right after a command, or came back."""
    found = []
    for number in rounds:
        project = Agent(base, base / f"project{number}")
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


@pytest.mark.usefixtures("agent")
def test_it_goes_at_once_and_stays_away(tmp_path: Path) -> None:
    assert _removed(tmp_path, range(20)) == []


@pytest.mark.long
@pytest.mark.usefixtures("agent")
def test_it_goes_at_once_and_stays_away_long(tmp_path: Path) -> None:
    assert _removed(tmp_path, range(400)) == []


def test_what_waits_for_the_next_command_is_never_in_it(agent: Agent) -> None:
    """Worlds come into the project for their command and leave before the answer."""
    _new_project(agent)
    _until_ahead(agent)
    worlds, store = (
        agent.workspace / ".substrate-git" / "worlds",
        agent.workspace / ".substrate-git",
    )
    watch = Inotify()
    try:
        for place in (worlds, store):
            watch.add(bytes(place), CREATE | DELETE | MOVED_FROM | MOVED_TO)
        for line in ("true", "echo 1 > a", "true"):
            assert agent.run("-c", line).returncode == 0
            assert list(worlds.iterdir()) == []
            _until_ahead(agent)
        happened = watch.read()
    finally:
        watch.close()
    assert happened, "commands had worlds"
    assert {event.name.split(b"_")[0] for event in happened} == {b"wld"}


def test_another_one_in_its_place_is_a_new_one(agent: Agent) -> None:
    _new_project(agent)
    _until_ahead(agent)
    for number in range(4):
        shutil.rmtree(agent.workspace)
        _new_project(agent)
        done = agent.run("-c", f"cat a; ls; echo {number} > made")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"0\na\n", b"")
        said = json.loads(agent.run("log", "--json").stdout)
        assert [one["command"] for one in said["commands"]][1:] == ["baseline"]
    assert agent.run("fsck").returncode == 0


def test_one_that_is_moved_away_leaves_nothing_behind(agent: Agent, tmp_path: Path) -> None:
    _new_project(agent)
    lines = []
    for number in range(6):
        line = f"echo {number} >> made"
        assert agent.run("-c", line).returncode == 0
        lines.append(line)
        moved = Agent(tmp_path, tmp_path / f"moved{number}")
        agent.workspace.rename(moved.workspace)
        line = f"echo there {number} >> made"
        assert moved.run("-c", line).returncode == 0
        lines.append(line)
        time.sleep(_SETTLED_S)
        assert not agent.workspace.exists()
        assert list((moved.workspace / ".substrate-git" / "worlds").iterdir()) == []
        agent.workspace = moved.workspace
    said = json.loads(agent.run("log", "--json").stdout)
    assert [one["command"] for one in said["commands"]] == [*lines[::-1], "baseline"]
    assert agent.run("fsck").returncode == 0
    agent.run("agent", "stop")
    until(lambda: not agent.worlds(), "the end of what waited")
