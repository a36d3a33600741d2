"""Many commands at once in one workspace: nothing is lost, and every conflict is reported."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("overlay", "root")

_SESSIONS, _COMMANDS = 4, 20


def test_twenty_commands_of_four_sessions(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    lines = [f"line {number}\n" for number in range(200)]
    (project / "shared").write_text("".join(lines))
    (project / "fought").write_text("start\n")
    program = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    program("-c", "true").went_well()

    def one(number: int) -> int:
        line = (
            f"echo {number} > own{number}; mkdir -p d; echo {number} > d/{number};"
            f" sed -i 's/^line {number * 9}$/by {number}/' shared;"
            f" echo {number} > fought; sleep 0.2"
        )
        return program("--session", f"s-{number % _SESSIONS}", "--world", "-c", line).status

    with ThreadPoolExecutor(_COMMANDS) as pool:
        statuses = list(pool.map(one, range(_COMMANDS)))

    for number in range(_COMMANDS):
        assert (project / f"own{number}").read_text() == f"{number}\n"
        assert (project / "d" / str(number)).read_text() == f"{number}\n"
    shared = (project / "shared").read_text().splitlines()
    spans = [
        span for span in program.json("trace")["spans"]
        if span["event_type"] == "command_complete" and "own" in span["command"]
    ]  # fmt: skip
    assert len(spans) == _COMMANDS
    by_number = {int(span["command"].split()[1]): span for span in spans}
    lost_fights = 0
    for number, span in by_number.items():
        conflicts = set(span["conflicts"])
        assert statuses[number] == (122 if conflicts else 0)
        if "shared" not in conflicts:
            assert f"by {number}" in shared
        assert conflicts <= {"fought", "shared"}
        lost_fights += "fought" in conflicts
        for path in conflicts:  # the command's own version is kept
            kept = program("recover", "show", span["command_id"], path).went_well()
            assert str(number) in kept.text
    assert lost_fights > 0
    winner = (project / "fought").read_text().strip()
    assert "fought" not in by_number[int(winner)]["conflicts"]
    assert program.json("world", "list")["worlds"] == []
    # Every change is in history: a scan finds nothing more.
    before = len(program.json("log", "--limit", "0")["commands"])
    program("checkpoint").went_well()
    assert len(program.json("log", "--limit", "0")["commands"]) == before
    assert program("fsck").status == 0


def test_twelve_commands_that_each_stage_something(tmp_path: Path) -> None:
    """At once in one repository, while its user stages something himself."""
    project = tmp_path / "project"
    project.mkdir()
    program = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    git(project, "init", "-q")
    (project / "mine").write_text("mine\n")
    program("-c", "true").went_well()

    def one(number: int) -> int:
        line = f"echo {number} > f{number}; sleep 0.3; git add f{number}"
        return program("--world", "-c", line).status

    with ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(one, number) for number in range(12)]
        git(project, "add", "mine")
        assert [job.result() for job in jobs] == [0] * 12
    assert program.json("world", "list")["worlds"] == []
    names = git(project, "diff", "--cached", "--name-only").split()
    assert sorted(names) == sorted([*(f"f{number}" for number in range(12)), "mine"])
    assert git(project, "fsck", "--strict", "--full") == ""


def git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout
