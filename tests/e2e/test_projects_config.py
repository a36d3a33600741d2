"""`substrate projects` and `substrate config`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "one").mkdir()
    return Program(tmp_path / "one", {"SUBSTRATE_HOME": str(tmp_path / "home")})


def roots(program: Program) -> dict[str, bool]:
    return {Path(one["root"]).name: one["exists"] for one in program.json("projects")["projects"]}


def test_projects_are_listed_and_those_that_are_gone_are_forgotten(
    program: Program, tmp_path: Path
) -> None:
    assert "no projects yet" in program("projects").went_well().errors
    program("-c", "echo 1 > a").went_well()
    other = Program(tmp_path / "two", program.env)
    other.cwd.mkdir()
    other("-c", "echo 1 > a").went_well()
    [newest, _] = program.json("projects")["projects"]
    assert newest["root"] == str(other.cwd) and newest["size_bytes"] > 0
    assert newest["last_used"] and newest["held_worlds"] == 0
    assert str(other.cwd) in program("projects").went_well().text
    shutil.rmtree(other.cwd)
    assert roots(program) == {"one": True, "two": False}
    assert "gone" in program("projects").text
    assert "would be forgotten" in program("projects", "prune", "--dry-run").went_well().text
    assert program.json("projects", "prune")["forgotten"] == [str(other.cwd)]
    assert roots(program) == {"one": True}
    assert (program.cwd / ".substrate-git").is_dir()
    program("projects", "--dry-run").is_clear(2, "--dry-run")


def test_a_setting_is_written_and_says_where_it_is_from(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "home" / "config.toml"
    file.parent.mkdir()
    before = "# mine\n[retention]\ncheckpoints = 9  # nine\n\n[trash]\nmax_mib = 1\n"
    file.write_text(before)
    assert program("config", "get", "retention.checkpoints").went_well().text == "9\n"
    program("config", "set", "retention.sessions", "7").went_well()
    assert file.read_text() == before.replace("# nine\n", "# nine\nsessions = 7\n")
    program("config", "set", "retention.checkpoints", "3").went_well()
    assert "checkpoints = 3\n" in file.read_text() and "# mine" in file.read_text()
    program("config", "set", "agents.allow", "~/work, ~/oss").went_well()
    assert program.json("config", "get", "agents.allow")["value"] == ["~/work", "~/oss"]
    listed = {one["name"]: one for one in program.json("config", "list")["settings"]}
    assert listed["retention.sessions"] == {
        "name": "retention.sessions", "value": 7, "from": str(file),
    }  # fmt: skip
    assert listed["session.idle_hours"]["from"] == "default"


def test_a_projects_own_setting_wins_and_wrong_ones_change_nothing(
    program: Program, tmp_path: Path
) -> None:
    program("config", "set", "trash.max_mib", "1", "--project").is_clear(4, "no history")
    program("-c", "true").went_well()
    program("config", "set", "trash.max_mib", "1", "--project").went_well()
    said = program("config", "set", "trash.max_mib", "2").went_well()
    assert "wins here" in said.errors
    assert program("config", "get", "trash.max_mib").text == "1\n"
    home = (tmp_path / "home" / "config.toml").read_text()
    program("config", "set", "trash.max_mib", "many").is_clear(2, "a whole number")
    program("config", "set", "history.external", "perhaps").is_clear(2, '"refuse"')
    program("config", "set", "no.such", "1").is_clear(4, "no setting 'no.such'")
    program("config", "set", "agents.allow", "x", "--project").is_clear(2, "the user's to set")
    program("config", "get").is_clear(2, "config get NAME")
    assert (tmp_path / "home" / "config.toml").read_text() == home


@pytest.mark.needs("posix")
def test_a_linked_store_gets_no_settings(program: Program, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (program.cwd / ".substrate-git").symlink_to(elsewhere)
    program("config", "set", "--project", "retention.sessions", "7").is_clear(5, "not opened")
    assert list(elsewhere.iterdir()) == []
