"""`history.external = "refuse"`: nothing runs while the workspace holds unrecorded edits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a").write_text("1\n")
    made = Program(root)
    made.sh("echo 2 > a")
    (root / ".substrate-git" / "config.toml").write_text('[history]\nexternal = "refuse"\n')
    return made


@pytest.mark.parametrize(
    "how", ["--no-world", pytest.param("--world", marks=pytest.mark.needs("world-overlay"))]
)
def test_a_command_is_refused_until_the_edits_are_accepted(program: Program, how: str) -> None:
    (program.cwd / "mine").write_text("by hand\n")
    log = program("log").out
    refused = program(how, "-c", "touch ran").is_clear(5, "mine", "`substrate status --accept`")
    assert "external" in refused.errors
    assert not (program.cwd / "ran").exists()
    assert program("log").out == log
    for words in (("undo",), ("checkpoint",), ("rollback", "--to", "@")):
        program(*words).is_clear(5, "mine")
    assert program("log").out == log
    # Questions and dry runs are answered.
    program("undo", "--dry-run").went_well()
    program("blame", "a").went_well()
    assert program.json("status")["outside_changes"] == ["mine"]
    assert program.json("status", "--accept")["accepted"] == ["mine"]
    assert program.json("log", "--limit", "1")["commands"][0]["kind"] == "external"
    program(how, "-c", "touch ran").went_well()
    assert (program.cwd / "ran").exists()
    program("undo").went_well()
    assert (program.cwd / "mine").read_text() == "by hand\n"


def test_a_clean_workspace_is_not_refused(program: Program) -> None:
    program.sh("echo 3 > a")
    program.sh("echo 4 > a")
    program("undo").went_well()
    assert (program.cwd / "a").read_text() == "3\n"


def test_a_word_that_is_no_choice(program: Program) -> None:
    (program.cwd / ".substrate-git" / "config.toml").write_text('[history]\nexternal = "maybe"\n')
    program("log").is_clear(2, "history.external")
