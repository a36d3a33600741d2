"""`substrate try`, `world compare`, `world pick`: several attempts, one chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("old\n")
    return Program(project)


LINE = (
    'echo "by $SUBSTRATE_ATTEMPT" > a.txt; echo same > b.txt; test $SUBSTRATE_ATTEMPT = 2 &&'
    " echo only > c.txt; echo printed; exit 0"
)


def test_attempts_are_held_compared_and_one_is_picked(program: Program) -> None:
    check = ("--check", "grep -q 'by 2' a.txt")
    tried = program("--json", "try", "2", *check, "--", "sh", "-c", LINE).went_well().document
    one, two = tried["attempts"]
    assert [(a["attempt"], a["exit"], a["check"]["passed"]) for a in (one, two)] == [
        (1, 0, False), (2, 0, True),
    ]  # fmt: skip
    assert (program.cwd / "a.txt").read_text() == "old\n"
    other = program("--hold", "-c", "echo apart > apart").went_well()  # of no group
    names = one["world_id"], two["world_id"]
    compared = program.json("world", "compare", *names)
    assert (compared["same"], compared["differ"]) == (["b.txt"], ["a.txt", "c.txt"])
    assert [w["size_bytes"] for w in compared["worlds"]] == [10, 15]
    assert [(w["attempt"], w["additions"]) for w in compared["worlds"]] == [(1, 2), (2, 3)]
    shown = program("world", "compare", *names).went_well().text
    assert "failed (1)" in shown and "passed" in shown and "same" in shown
    picked = program.json("world", "pick", two["world_id"])
    assert picked["discarded"] == [one["world_id"]] and picked["rest"] is None
    assert (program.cwd / "a.txt").read_text() == "by 2\n" and (program.cwd / "c.txt").exists()
    [left] = program.json("world", "list")["worlds"]
    assert left["command"] == "echo apart > apart" and "not applied" in other.errors
    program("world", "pick", left["world_id"]).is_clear(5, "is no attempt")
    program("undo").went_well()
    program("world", "apply", one["world_id"]).went_well()  # a discarded one can still be applied
    assert (program.cwd / "a.txt").read_text() == "by 1\n"


def test_the_others_stay_if_the_picked_one_conflicts(program: Program) -> None:
    done = program("try", "2", "--", "sh", "-c", LINE).went_well()
    assert "substrate world compare wld_" in done.text
    assert "substrate world pick wld_" in done.text
    first, second = program.json("world", "list")["worlds"]
    (program.cwd / "a.txt").write_text("mine\n")
    picked = program("world", "pick", first["world_id"])
    assert picked.status == 1 and "the other attempts are still held" in picked.errors
    assert (program.cwd / "a.txt").read_text() == "mine\n"
    [left] = program.json("world", "list")["worlds"]
    assert left["world_id"] == second["world_id"]


def test_attempts_that_fail_or_change_nothing_are_reported(program: Program) -> None:
    done = program("try", "2", "--", "sh", "-c", "exit $SUBSTRATE_ATTEMPT").is_status(1)
    assert done.text.count("(changed nothing)") == 2
    assert program.json("world", "list")["worlds"] == []
    program("try", "2", "--net", "sometimes", "--", "true").is_clear(5, "could not run")
    program("try", "0", "--", "true").is_clear(2, "from 1 to")
    program("try", "2").is_clear(2, "no command was given")
    program("world", "compare", "wld_1").is_clear(2, "at least two")


PLANTS = """
for place in "${TMPDIR:-/tmp}"/substrate-*/ "$SUBSTRATE_HOME"/scratch/*/; do
    for number in 2 3 4 5 6 7 8; do ln -s "$REAL" "$place/$number.out" "$place/$number"; done
done 2>/dev/null
echo planted
"""


def test_an_attempt_cannot_lead_the_output_of_a_later_one_elsewhere(
    program: Program, tmp_path: Path
) -> None:
    """Attempts run beside each other: a link at the place of the next one's output."""
    real = tmp_path / "real"
    real.write_text("mine\n")
    (program.cwd / "plant.sh").write_text(PLANTS)
    program.env["REAL"] = str(real)
    program("try", "8", "--", "sh", "plant.sh")
    assert real.read_text() == "mine\n"


def test_a_project_cannot_replace_our_own_modules(program: Program, tmp_path: Path) -> None:
    planted = program.cwd / "substrate"
    planted.mkdir()
    (planted / "__init__.py").touch()
    (planted / "__main__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    installed = Path(sys.executable).parent / "substrate"
    for words in (["try", "1", "--", "true"], ["uninstall"]):
        done = subprocess.run(
            [installed, *words], cwd=program.cwd, env={**os.environ, **program.env},
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        assert not (tmp_path / "ran").exists(), words
