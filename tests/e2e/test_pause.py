"""`substrate pause`, `resume` and `run --no-record`: nothing of that time is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.hook_reports import Claude, encoded


@pytest.fixture
def program(tmp_path: Path) -> Program:
    root = tmp_path / "project"
    root.mkdir()
    made = Program(root, {"SUBSTRATE_HOME": str(tmp_path / "home")})
    made.sh("echo one > a.txt")
    return made


def kinds(program: Program) -> list[str]:
    return [one["kind"] for one in program.json("log")["commands"]]


def trace(program: Program) -> str:
    return (program.cwd.parent / "home" / "trace.jsonl").read_text()


def test_a_paused_project_records_nothing(program: Program) -> None:
    before, traced = kinds(program), trace(program)
    assert program.json("pause")["paused"] is True
    done = program("-c", "echo two > a.txt; exit 3")
    assert (done.status, done.err) == (3, b"")
    assert (program.cwd / "a.txt").read_text() == "two\n"
    claude = Claude(program.cwd)
    for report in (claude.start(), claude.prompt("hello")):
        program("hook", "claude-code", stdin=encoded(report)).went_well()
    assert (kinds(program), trace(program)) == (before, traced)
    assert "paused" in program.json("status")["history"]
    program("checkpoint").is_clear(5, "substrate resume")
    assert program.json("resume")["paused"] is False
    program.sh("true")
    assert program.json("status")["history"] == "kept"


def test_what_changed_during_the_pause_is_external(program: Program) -> None:
    program("pause").went_well()
    program.sh("echo two > a.txt")
    program("resume").went_well()
    assert program.json("status")["outside_changes"] == ["a.txt"]


def test_a_project_without_history_can_be_paused(tmp_path: Path) -> None:
    program = Program(tmp_path, {"SUBSTRATE_HOME": str(tmp_path.parent / "home-of-pause")})
    program("pause").went_well()
    program.sh("true")
    assert program("log").status != 0
    program("resume").went_well()
    program.sh("echo x > x")
    assert kinds(program) == ["command", "baseline"]


def test_a_file_that_a_clone_brings_pauses_nothing(program: Program) -> None:
    (program.cwd / ".substrate-git" / "paused").touch()
    before = kinds(program)
    program.sh("echo two > a.txt")
    assert kinds(program) == ["command", *before]


@pytest.mark.needs("linux")
def test_on_a_terminal_each_command_says_that_it_is_not_recorded(program: Program) -> None:
    program("pause").went_well()
    said = " ".join(program.on_a_terminal(200, "-c", "true"))
    assert "recording is paused" in said
    assert "substrate resume" in said


def test_a_world_cannot_be_required_without_a_record(program: Program) -> None:
    assert program("run", "--no-record", "--hold", "--", "true").status == 125


def test_one_command_without_a_record(program: Program) -> None:
    before, traced = kinds(program), trace(program)
    done = program("run", "--no-record", "--", "sh", "-c", "echo two > a.txt; echo out")
    assert (done.status, done.out, done.err) == (0, b"out\n", b"")
    assert (kinds(program), trace(program)) == (before, traced)
    assert program.json("status")["outside_changes"] == ["a.txt"]


def test_commands_of_an_agent_are_not_recorded_where_the_user_denies_it(program: Program) -> None:
    home = program.cwd.parent / "home"
    (home / "config.toml").write_text(f'[agents]\ndeny = ["{program.cwd}"]\n')
    before = kinds(program)
    agent = Program(program.cwd, {"SUBSTRATE_HOME": str(home), **Claude(program.cwd).variables})
    agent.sh("echo two > a.txt")
    assert kinds(program) == before
    program.sh("true")  # a person's command is
    assert kinds(program)[0] == "command"
