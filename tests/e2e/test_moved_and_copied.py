"""A project that is moved, copied or cloned, a linked worktree, a history of a newer version."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("overlay", "root")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("1\n")
    git(project, "init", "-q")
    git(project, "add", "a")
    git(project, "commit", "-qm", "one")
    made = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    made.sh("echo 2 > a")
    made("--hold", "-c", "echo held > h").went_well()
    return made


def git(where: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=where, check=True, capture_output=True)


def at(program: Program, place: Path) -> Program:
    return Program(place, program.env)


def works(program: Program, stood: str) -> None:
    """A command is recorded and taken back, and the history is sound."""
    program.sh("echo more > a")
    assert (program.cwd / "a").read_text() == "more\n"
    program("undo").went_well()
    assert (program.cwd / "a").read_text() == stood
    program("fsck").went_well()


def worlds(program: Program) -> list[str]:
    return [one["world_id"] for one in program.json("world", "list")["worlds"]]


def test_moved(program: Program, tmp_path: Path) -> None:
    moved = at(program, tmp_path / "elsewhere")
    program.cwd.rename(moved.cwd)
    works(moved, "2\n")
    moved("world", "apply", *worlds(moved)).went_well()
    assert (moved.cwd / "h").read_text() == "held\n"
    assert not program.cwd.exists()


def test_copied_and_both_used(program: Program, tmp_path: Path) -> None:
    copy = at(program, tmp_path / "copy")
    subprocess.run(["cp", "-a", program.cwd, copy.cwd], check=True)
    works(copy, "2\n")
    works(program, "2\n")
    # What becomes of a world in the copy is nothing to the original.
    copy("world", "discard", *worlds(copy)).went_well()
    assert worlds(copy) == []
    program("world", "apply", *worlds(program)).went_well()
    assert (program.cwd / "h").read_text() == "held\n"
    assert not (copy.cwd / "h").exists()


def test_cloned(program: Program, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(program.cwd), "clone")
    clone = at(program, tmp_path / "clone")
    works(clone, "1\n")
    assert worlds(clone) == []


def unpacked(program: Program, place: Path) -> Program:
    """The project, as another user gets it in an archive."""
    subprocess.run(["cp", "-a", program.cwd, place], check=True)
    home = place.parent / "another-home"
    return Program(place, {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")})


def is_refused(program: Program) -> None:
    """Every verb says in one line that the history is a stranger's, and what to type."""
    before = (program.cwd / "a").read_bytes()
    words = ("not made here", "substrate history reset --yes", "substrate history adopt")
    program("-c", "echo mine > a").is_clear(125, *words)
    for verb in (
        *(["log"], ["undo"], ["show", "@"], ["fsck"], ["fsck", "--repair"], ["compact"]),
        *(["checkpoint"], ["world", "list"], ["recover", "list"], ["blame", "a"]),
    ):
        program(*verb).is_clear(5, *words)
    assert (program.cwd / "a").read_bytes() == before


def test_a_strangers_history_in_an_archive_is_put_aside(program: Program, tmp_path: Path) -> None:
    other = unpacked(program, tmp_path / "unpacked")
    (other.cwd / ".substrate-git/config.toml").write_text('[history]\nexternal = "refuse"\n')
    is_refused(other)
    other("history", "reset", "--yes").went_well()
    works(other, "2\n")
    assert worlds(other) == []
    works(program, "2\n")
    kinds = [one["kind"] for one in other.json("log")["commands"]]
    assert kinds == ["undo", "command", "baseline"], "nothing of the stranger's"


def test_a_history_in_an_archive_is_adopted_if_the_user_says_so(
    program: Program, tmp_path: Path
) -> None:
    other = unpacked(program, tmp_path / "unpacked")
    assert other.json("history", "adopt", "--dry-run")["adopted"]
    is_refused(other)
    other("history", "adopt").went_well()
    assert not other.json("history", "adopt")["adopted"]
    works(other, "2\n")
    assert len(worlds(other)) == 1


def test_a_history_that_is_committed_and_cloned_is_not_used(
    program: Program, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(program.cwd), "published")
    published = tmp_path / "published"
    subprocess.run(["cp", "-a", program.cwd / ".substrate-git", published], check=True)
    shutil.rmtree(published / ".substrate-git/.git")  # with it, git would see a submodule
    git(published, "add", "-f", ".substrate-git")
    git(published, "commit", "-qm", "by mistake")
    for home in ("another", "home"):  # a stranger's, and the user's own: both lack the objects
        git(tmp_path, "clone", "-q", str(published), f"clone-{home}")
        clone = Program(
            tmp_path / f"clone-{home}", {**program.env, "SUBSTRATE_HOME": str(tmp_path / home)}
        )
        is_refused(clone)
        clone("history", "reset", "--yes").went_well()
        works(clone, "1\n")


def test_a_project_in_a_container_with_another_home(program: Program, tmp_path: Path) -> None:
    other = Program(program.cwd, {**program.env, "SUBSTRATE_HOME": str(tmp_path / "another")})
    works(other, "2\n")
    moved = tmp_path / "elsewhere"
    program.cwd.rename(moved)
    works(at(other, moved), "2\n")


def test_a_history_of_a_version_without_the_mark(program: Program, tmp_path: Path) -> None:
    mark = program.cwd / ".substrate-git/made-by"
    mark.unlink()
    other = Program(program.cwd, {**program.env, "SUBSTRATE_HOME": str(tmp_path / "another")})
    works(other, "2\n")
    assert mark.exists(), "it is adopted"


@pytest.mark.parametrize("place", ["../linked", "linked"])
def test_a_linked_worktree(program: Program, place: str) -> None:
    git(program.cwd, "worktree", "add", "-q", place)
    linked = at(program, (program.cwd / place).resolve())
    linked.sh("echo linked > a; git commit -qam linked")
    assert (linked.cwd / "a").read_text() == "linked\n"
    said = subprocess.run(
        ["git", "log", "-1", "--format=%s"], cwd=linked.cwd, check=True, capture_output=True
    )
    assert said.stdout == b"linked\n"
    linked("fsck").went_well()
    works(program, "2\n")


def test_a_history_of_a_newer_version_is_left_alone(program: Program) -> None:
    path = program.cwd / ".substrate-git/index/history.db"
    with closing(sqlite3.connect(path)) as ledger:
        version = ledger.execute("PRAGMA user_version").fetchone()[0]
        ledger.execute(f"PRAGMA user_version={version + 5}")
        ledger.commit()
    program("-c", "echo 3 > a").is_clear(125, "newer Substrate", "upgrade Substrate")
    for words in (("log",), ("fsck",), ("fsck", "--repair"), ("undo",)):
        program(*words).is_clear(5, "newer Substrate")
    assert (program.cwd / "a").read_text() == "2\n"
    assert not (program.cwd / ".substrate-git/quarantine").exists()
    with closing(sqlite3.connect(path)) as ledger:
        ledger.execute(f"PRAGMA user_version={version}")
        ledger.commit()
    works(program, "2\n")
