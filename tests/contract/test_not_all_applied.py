"""Exit status 122: the command ran, and not all of its change is in the tree.

A status of 0 without ``--hold`` means that the tree has the change; so every way into a command is
tried with a change that cannot arrive.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Done, Program
from tests.contract.test_daemon_stream import terminal
from tests.daemon_http import request
from tests.daemons import SUBSTRATE, Daemon, daemon_in, until

pytestmark = pytest.mark.needs("world-overlay")

#: Changes `a`, and waits until the test has changed it, too.
CHANGES_A = "echo theirs > a; echo new > b; touch {ready}; until test -e {go}; do sleep 0.02; done"
#: Held, because `hold_code` is set.
CHANGES_CODE = "echo layout python > .envrc"


class Race:
    """A command and another writer change one file at the same time."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.ready, self.go = project.parent / "ready", project.parent / "go"
        self.line = CHANGES_A.format(ready=self.ready, go=self.go)

    def change(self) -> None:
        until(self.ready.exists, "the command's change")
        (self.project / "a").write_text("mine\n")
        self.go.touch()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a").write_text("1\n")
    return path


@pytest.fixture
def program(project: Path) -> Program:
    made = Program(project)
    made("-c", "true").went_well()
    return made


@pytest.fixture
def race(project: Path) -> Race:
    return Race(project)


def raced(program: Program, race: Race, *words: str) -> Done:
    env = {**os.environ, "SUBSTRATE_DAEMON": "off"}
    started = subprocess.Popen(
        [*SUBSTRATE, *words], cwd=program.cwd, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    race.change()
    out, err = started.communicate(timeout=60)
    return Done(started.returncode, out, err)


def holds_code(project: Path) -> None:
    (project / ".substrate-git" / "config.toml").write_text("[world]\nhold_code = true\n")


def the_commands_in(line: str) -> dict[str, list[str]]:
    """`Look: substrate recover show c-1. Apply: …`, as words to type."""
    steps = {}
    for step in line.split(". ")[1:]:
        name, _, words = step.partition(": ")
        steps[name] = words.split() if words.startswith("substrate ") else []
    return steps


@pytest.mark.parametrize("way", ["-c", "-f", "run", "--pty"])
def test_a_conflict(program: Program, race: Race, way: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(race.line)
    words = {
        "-c": ["-c", race.line], "-f": ["-f", str(tmp_path / "script")],
        "run": ["run", "--", "sh", "-c", race.line], "--pty": ["--pty", "-c", race.line],
    }[way]  # fmt: skip
    done = raced(program, race, *words)
    assert done.status == 122
    shown = done.errors if way != "--pty" else done.errors + done.text
    last = shown.splitlines()[-1]
    assert last.startswith("substrate: not applied: a (conflict): ")
    assert (program.cwd / "a").read_text() == "mine\n"
    assert (program.cwd / "b").read_text() == "new\n"
    steps = the_commands_in(last)
    assert "  a" in program(*steps["Look"][1:]).went_well().text
    program(*steps["Apply"][1:]).went_well()
    assert (program.cwd / "a").read_text() == "theirs\n"
    span = program.json("trace")["spans"][-1]
    assert (span["exit"], span["outcome"], span["conflicts"]) == (0, "conflict", ["a"])


def test_the_commands_own_failure_is_kept(program: Program, race: Race) -> None:
    race.line += "; exit 3"
    done = raced(program, race, "-c", race.line)
    assert done.status == 3
    assert done.errors.splitlines()[-1].startswith("substrate: not applied: a (conflict): ")
    assert program.json("trace")["spans"][-1]["outcome"] == "conflict"


def test_a_hold_that_was_not_asked_for(program: Program) -> None:
    holds_code(program.cwd)
    done = program("-c", CHANGES_CODE)
    assert done.status == 122
    last = done.errors.splitlines()[-1]
    assert last.startswith("substrate: not applied: .envrc (")
    steps = the_commands_in(last)
    assert "+layout python" in program(*steps["Look"][1:]).went_well().text
    program(*steps["Apply"][1:]).went_well()
    assert (program.cwd / ".envrc").read_text() == "layout python\n"
    program("-c", "echo 4 > .envrc; exit 4").is_status(4)
    last = program("-c", "echo 0 > .envrc").is_status(122).errors.splitlines()[-1]
    program(*the_commands_in(last)["Discard"][1:]).went_well()
    [world] = program.json("world", "list")["worlds"]
    span = program.json("trace")["spans"][-1]
    assert (span["exit"], span["outcome"]) == (0, "held")
    assert world["world_id"] != span["world_id"]


def test_a_hold_that_was_asked_for_keeps_the_commands_own(program: Program) -> None:
    holds_code(program.cwd)
    done = program("--hold", "-c", CHANGES_CODE).went_well()
    assert "asked for with --hold" in done.errors
    program("--hold", "-c", "echo x > .envrc; exit 5").is_status(5)
    assert not (program.cwd / ".envrc").exists()


@pytest.mark.needs("other-user")
def test_an_apply_that_fails() -> None:
    with tempfile.TemporaryDirectory() as base:
        project, home = Path(base, "project"), Path(base, "home")
        (project / "shut").mkdir(parents=True)
        (project / "shut" / "a").write_text("1\n")
        home.mkdir()
        for path in (Path(base), *Path(base).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s"), "PATH": "/usr/bin:/bin"}
        program = Program(project, env, NOBODY)
        program("-c", "true").went_well()
        race = Race(project)
        with ThreadPoolExecutor() as beside:
            running = beside.submit(program, "-c", "echo 2 > shut/a; " + race.line)
            until(race.ready.exists, "the command's change")
            (project / "shut").chmod(0)
            race.go.touch()
            done = running.result().is_status(122)
        (project / "shut").chmod(0o755)
        assert "shut/a" in done.errors.splitlines()[-1]
        assert not (project / "b").exists()
        span = program.json("trace")["spans"][-1]
        assert (span["exit"], span["outcome"]) == (0, "apply_failed")
        program(*the_commands_in(done.errors.splitlines()[-1])["Apply"][1:]).went_well()
        assert (project / "shut" / "a").read_text() == "2\n"


def test_many_paths_are_bounded(program: Program) -> None:
    holds_code(program.cwd)
    done = program("-c", CHANGES_CODE + "; touch $(seq 1 300)").is_status(122)
    last = done.errors.splitlines()[-1]
    assert " and 293 more (" in last
    assert len(last) < 600


def test_a_program_that_ends_with_122_itself(program: Program) -> None:
    done = program("-c", "echo x > x; exit 122").is_status(122)
    assert done.errors == ""
    span = program.json("trace")["spans"][-1]
    assert (span["exit"], span["outcome"]) == (122, "completed")


def test_inside_a_world_the_outer_command_reports_it(program: Program) -> None:
    holds_code(program.cwd)
    inner = " ".join([*SUBSTRATE, "-c", f"'{CHANGES_CODE}'"])
    done = program("-c", f"{inner}; echo inner $?").is_status(122)
    assert done.text == "inner 0\n"
    assert done.errors.splitlines()[-1].startswith("substrate: not applied: .envrc (")


def test_what_a_command_leaves_running_is_no_failure(program: Program) -> None:
    program("-c", "echo 1 > b; sleep 60 > /dev/null 2>&1 &").is_status(0)
    holds_code(program.cwd)
    line = CHANGES_CODE + "; sleep 60 > /dev/null 2>&1 &"
    last = program("-c", line).is_status(122).errors.splitlines()[-1]
    assert last.startswith("substrate: not applied: .envrc (")


def test_on_the_real_files_there_is_nothing_to_hold(program: Program) -> None:
    holds_code(program.cwd)
    for words in (["--no-world", "-c"], ["run", "--live", "-c"]):
        (program.cwd / ".envrc").unlink(missing_ok=True)
        program(*words, CHANGES_CODE).is_status(0)
        assert (program.cwd / ".envrc").exists()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("daemon")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as daemon:
        daemon.serve()
        yield base


@pytest.fixture
def daemon(base: Path, project: Path) -> Daemon:
    made = Daemon(base, project, {"SUBSTRATE_HOME": str(base / "home")})
    assert made.run("-c", "true").returncode == 0
    holds_code(project)
    return made


@pytest.mark.parametrize("client", ["python", "installed"])
def test_through_the_door(daemon: Daemon, race: Race, client: str) -> None:
    if client == "installed":
        daemon.program = ["substrate"]
    assert daemon.serves()
    started = daemon.start("-c", race.line)
    race.change()
    _, err = started.communicate(timeout=60)
    assert started.returncode == 122
    last = err.decode().splitlines()[-1]
    assert last.startswith("substrate: not applied: a (conflict): ")
    assert daemon.run("-c", CHANGES_CODE).returncode == 122
    assert daemon.run("--hold", "-c", CHANGES_CODE).returncode == 0
    assert daemon.run("-c", CHANGES_CODE + "; exit 9").returncode == 9


def test_over_http(daemon: Daemon, project: Path) -> None:
    body = {"cmd": CHANGES_CODE, "cwd": str(project)}
    how = {"content-type": "application/json"}
    found = request(daemon.socket, "POST", "/v1/execute", body, how).document
    assert (found["exit"], found["outcome"]) == (122, "held")
    assert found["world_id"].startswith("wld_") and ".envrc" in found["held"]
    frames = request(daemon.socket, "POST", "/v1/execute/stream", body, how).body.splitlines()
    last = json.loads(frames[-1])
    assert (last["type"], last["outcome"]) == ("exit", "held")
    assert 122 in (last.get("code"), last.get("exit"))
    whole = request(
        daemon.socket, "POST", "/v1/execute", {**body, "cmd": "echo 2 > c"}, how
    ).document
    assert (whole["exit"], whole["outcome"], whole["held"]) == (0, "completed", None)


def test_over_a_websocket(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as shown:
        shown.say("start", cmd=CHANGES_CODE, cwd=str(project), env={"TERM": "dumb"})
        end = shown.until_end()
    assert (end["code"], end["outcome"]) == (122, "held")
