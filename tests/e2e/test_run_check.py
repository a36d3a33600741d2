"""`run --check CMD`: the change arrives only if the check passes on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    (project / "d").mkdir(parents=True)
    (project / "a.txt").write_text("old\n")
    (project / "d" / "gone").write_text("g\n")
    return Program(project)


CHANGE = "echo new > a.txt; rm -r d; mkdir d; echo in > d/in; echo printed"


def test_a_change_that_passes_arrives_and_what_the_check_writes_does_not(
    program: Program,
) -> None:
    check = "grep -q new a.txt && test ! -e d/gone && rm d/in && echo c > by_check && echo fine"
    done = program("run", "--check", check, "--", "sh", "-c", CHANGE).went_well()
    assert (done.text, done.errors) == ("printed\n", "")
    assert (program.cwd / "a.txt").read_text() == "new\n"
    assert sorted(p.name for p in (program.cwd / "d").iterdir()) == ["in"]
    assert not (program.cwd / "by_check").exists()
    detail = program.json("show")["detail"]["check"]
    assert (detail["exit"], detail["passed"]) == (0, True)
    assert Path(detail["output"]["ref"]).read_text() == "fine\n"
    assert "grep -q new" in program("show").text
    program("undo").went_well()
    assert (program.cwd / "d" / "gone").read_text() == "g\n"


def test_a_change_that_fails_is_held_with_the_output_of_the_check(program: Program) -> None:
    check = "echo one; echo two >&2; exit 3"
    done = program("-c", CHANGE, "--check", check)
    assert (done.status, done.text) == (122, "printed\n")
    lines = done.errors.splitlines()
    assert lines[:2] == ["one", "two"]
    assert "the check failed" in lines[-1] and "exited with 3" in lines[-1]
    assert "substrate world apply wld_" in lines[-1]
    assert (program.cwd / "a.txt").read_text() == "old\n"
    [world] = program.json("world", "list")["worlds"]
    assert [one["cause"] for one in world["causes"]] == ["check_failed"]
    assert "failed with exit 3" in program("show").text
    program("world", "apply", world["world_id"]).went_well()
    assert (program.cwd / "a.txt").read_text() == "new\n"


def test_the_command_keeps_its_own_status(program: Program) -> None:
    done = program("-c", "echo new > a.txt; exit 7", "--check", "false")
    assert done.status == 7 and "the check failed" in done.errors.splitlines()[-1]
    assert (program.cwd / "a.txt").read_text() == "old\n"
    done = program("-c", "true", "--check", "false").went_well()
    assert "the command changed nothing: the check did not run" in done.errors


def test_a_check_that_cannot_run_is_refused_before_the_command(program: Program) -> None:
    program("--no-world", "-c", "echo x > x", "--check", "true").is_clear(125, "--check")
    program.env["SUBSTRATE_WORLD_STRATEGY"] = "copy-diff"
    program("-c", "echo x > x", "--check", "true").is_clear(125, "--check needs an overlay")
    assert not (program.cwd / "x").exists()


def test_no_process_changes_what_was_checked(program: Program) -> None:
    line = "(while :; do date +%N > a.txt; done) > /dev/null 2>&1 & sleep 0.2"
    program("-c", line, "--check", "cat a.txt > /dev/null").went_well()
    [ref] = [program.json("show")["detail"]["check"]["passed"]]
    assert ref is True and (program.cwd / "a.txt").read_text() != "old\n"
    assert program.json("world", "list")["worlds"] == []
