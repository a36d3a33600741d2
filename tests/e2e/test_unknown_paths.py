"""A path that the work to take back did not touch is refused, not reported as done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    root = tmp_path / "project"
    root.mkdir()
    for name in ("a", "b"):
        (root / name).write_text("0\n")
    program = Program(root)
    program("checkpoint").went_well()
    program("-c", "echo 1 > a").went_well()
    return program


def entries(program: Program) -> int:
    return len(program.json("log")["commands"])


@pytest.mark.parametrize("name", ["nosuch", "b"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["", "dry-run"])
def test_undo_of_a_session(program: Program, name: str, more: tuple[str, ...]) -> None:
    """Seen: "the files are already that way", and exit status 0."""
    session, before = program.json("session", "current")["session_id"], entries(program)
    done = program("undo", "--whole-session", session, "--path", name, *more)
    done.is_clear(4, f"session {session} did not change {name}")
    assert entries(program) == before


@pytest.mark.parametrize("more", [(), ("--exact",)], ids=["", "exact"])
def test_rollback_knows_which_paths_exist(program: Program, more: tuple[str, ...]) -> None:
    before = entries(program)
    done = program("rollback", "--checkpoint", "1", "--path", "nosuch", *more)
    done.is_clear(4, "nosuch is neither in the workspace nor in")
    assert entries(program) == before
    program("rollback", "--checkpoint", "1", "--path", "b", *more).went_well()
    program("-c", "rm a").went_well()
    program("rollback", "--checkpoint", "1", "--path", "a", *more).went_well()
    assert (program.cwd / "a").read_text() == "0\n"


def test_recover_restore(program: Program) -> None:
    undone = program.json("undo")
    restore = undone["recover_with"].split()[1:]
    program(*restore, "nosuch").is_clear(4, "does not hold nosuch", "recover show")
    program(*restore, "a").went_well()
    assert (program.cwd / "a").read_text() == "1\n"
