"""Attempts to lose work, and the printed command that must restore it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Done, Program


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "place"
    made.mkdir()
    return made


@pytest.fixture
def program(place: Path, tmp_path: Path) -> Program:
    return Program(place, {"SUBSTRATE_HOME": str(tmp_path / "home")})


def taken_back(program: Program, done: Done) -> Done:
    """Do what the answer says takes it back."""
    printed = [line for line in done.text.splitlines() if "to take this back: " in line]
    words = printed[0].partition(": ")[2].split()
    assert words[0] == "substrate"
    return program(*words[1:]).went_well()


def test_a_file_excluded_since_and_then_replaced_comes_back(place: Path, program: Program) -> None:
    """The replaced content was in the trash, but `recover restore` said: nothing to change."""
    log = place / "a.log"
    log.write_text("one\n")
    program("-c", "true").went_well()
    program("-c", "echo two > a.log").went_well()
    (place / ".substrateignore").write_text("*.log\n")
    log.write_text("two\ntyped\n")
    undone = program("undo", "--take", "theirs").went_well()
    assert log.read_text() == "one\n"
    restored = taken_back(program, undone)
    assert log.read_text() == "two\ntyped\n"
    assert "restored  a.log" in restored.text
    again = taken_back(program, restored)
    assert log.read_text() == "one\n"
    taken_back(program, again)
    assert log.read_text() == "two\ntyped\n"


def test_an_excluded_file_replaced_by_an_exact_rollback_comes_back(
    place: Path, program: Program
) -> None:
    """`recover restore` removed the file and left the other one in the trash."""
    log = place / "a.log"
    log.write_text("one\n")
    program("checkpoint").went_well()
    program("-c", "echo two > a.log; echo '*.log' > .substrateignore").went_well()
    log.write_text("two\ntyped\n")
    rolled_back = program("rollback", "--checkpoint", "1", "--exact").went_well()
    assert log.read_text() == "one\n"
    restored = taken_back(program, rolled_back)
    assert log.read_text() == "two\ntyped\n"
    taken_back(program, restored)
    assert log.read_text() == "one\n"


def test_what_is_named_comes_back_from_the_trash_and_the_rest_stays(
    place: Path, program: Program
) -> None:
    for name in ("a.log", "b.log"):
        (place / name).write_text("one\n")
    program("checkpoint").went_well()
    program("-c", "echo '*.log' > .substrateignore").went_well()
    for name in ("a.log", "b.log"):
        (place / name).write_text("typed\n")
    program("rollback", "--checkpoint", "1", "--exact").went_well()
    snapshot = program("recover", "list").went_well().text.splitlines()[1].split()[2]
    program("recover", "restore", snapshot, "b.log").went_well()
    assert (place / "a.log").read_text() == "one\n"
    assert (place / "b.log").read_text() == "typed\n"


def test_undo_of_a_command_that_changed_the_rules_removes_nothing(
    place: Path, program: Program
) -> None:
    """What had been excluded until then looked new, and the undo removed it."""
    (place / ".substrateignore").write_text("*.log\n")
    (place / "a.log").write_text("precious\n")
    (place / "dist").mkdir()
    (place / "dist" / "x").write_text("built\n")
    program("-c", "true").went_well()
    program("-c", "echo '!dist/' > .substrateignore; echo new > new.log").went_well()
    changed = program.json("show", "@")["changed_files"]
    assert sorted(changed) == [".substrateignore", "new.log"]
    program("undo").went_well()
    assert (place / ".substrateignore").read_text() == "*.log\n"
    assert (place / "a.log").read_text() == "precious\n"
    assert (place / "dist/x").read_text() == "built\n"
    program("redo").went_well()
    assert (place / "dist/x").read_text() == "built\n"
    assert (place / "new.log").read_text() == "new\n"


def test_an_exact_rollback_leaves_what_the_rules_of_then_left_out(
    place: Path, program: Program
) -> None:
    (place / ".substrateignore").write_text("*.log\n")
    (place / "a.log").write_text("precious\n")
    (place / "dist").mkdir()
    (place / "dist" / "x").write_text("built\n")
    program("checkpoint").went_well()
    program("-c", "echo '!dist/' > .substrateignore; echo new > new").went_well()
    program("rollback", "--checkpoint", "1", "--exact").went_well()
    assert (place / "a.log").read_text() == "precious\n"
    assert (place / "dist/x").read_text() == "built\n"
    assert not (place / "new").exists()


def test_a_file_that_shrank_below_the_cap_is_not_removed_by_the_undo(
    place: Path, program: Program
) -> None:
    """Its old content is not kept (and that is said); what is left of it stays."""
    program("-c", "true").went_well()
    (place / ".substrate-git/config.toml").write_text("[exclude]\nmax_file_mib = 1\n")
    (place / "big").write_bytes(b"x" * 2_000_000)
    program("--no-world", "-c", "true").went_well()
    program("--no-world", "-c", "truncate -s 100 big; echo more > other").went_well()
    undone = program("undo").went_well()
    assert "cannot bring back" in undone.errors
    assert (place / "big").read_bytes() == b"x" * 100
    assert not (place / "other").exists()


def test_a_directory_that_stays_is_not_called_deleted(place: Path, program: Program) -> None:
    """It keeps an excluded one, which came along when the command moved it."""
    (place / "d" / "node_modules").mkdir(parents=True)
    (place / "d" / "node_modules" / "x").write_text("x")
    program("-c", "true").went_well()
    program("-c", "mv d d2").went_well()
    (place / "d2/node_modules/mine").write_text("since then")
    answer = program.json("undo")
    assert answer["deleted"] == []
    assert (place / "d2/node_modules/x").exists()
    assert (place / "d2/node_modules/mine").exists()


@pytest.mark.needs("posix")
def test_the_undo_of_an_interrupted_command_says_whose_work_is_in_it(
    place: Path, program: Program
) -> None:
    (place / "f").write_text("base\n")
    program("-c", "true").went_well()
    program("--no-world", "-c", "echo agent > g; kill -9 $PPID; sleep 0.2")
    (place / "f").write_text("typed\n")
    undone = program("undo").went_well()
    assert "was interrupted" in undone.errors
    assert (place / "f").read_text() == "base\n"
    taken_back(program, undone)
    assert (place / "f").read_text() == "typed\n"
