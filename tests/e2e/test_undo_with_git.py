"""`--with-git`: the user's branches go back with the files, or stay and say why."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract.program import Program


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def where(root: Path) -> tuple[str, str]:
    """HEAD and every ref, as git tells them."""
    head = (root / ".git/HEAD").read_text().strip()
    return head, git(root, "for-each-ref", "--format=%(refname) %(objectname)")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "u")
    git(root, "config", "user.email", "u@example.org")
    (root / "f").write_text("1\n")
    git(root, "add", "f")
    git(root, "commit", "-qm", "one")
    return Program(root)


def test_undo_moves_branches_and_head_back(program: Program) -> None:
    before = where(program.cwd)
    program.sh("echo 2 > f; git commit -qam two; git checkout -qb other; git tag new")
    done = program("undo", "--with-git").went_well()
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "1\n"
    assert "refs/heads/main, refs/heads/other, refs/tags/new, HEAD" in done.errors


def test_redo_moves_them_forward_again(program: Program) -> None:
    program("checkpoint").went_well()
    program.sh("echo 2 > f; git commit -qam two; git checkout -qb other; git tag new")
    program.sh("echo 3 > f; git commit -qam three")
    program.sh("git commit -q --allow-empty -m empty")
    after = where(program.cwd)
    program("rollback", "--checkpoint", "1", "--with-git").went_well()
    program("redo", "--with-git").went_well()
    assert where(program.cwd) == after
    assert (program.cwd / "f").read_text() == "3\n"


def test_a_redo_that_leaves_them_says_how_to_move_them(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    after = where(program.cwd)
    program("undo", "--with-git").went_well()
    told = program("redo").went_well().errors
    assert where(program.cwd) != after
    command = told.partition("to put them back: ")[2].partition(" (--with-git")[0]
    subprocess.run(["sh", "-c", command], cwd=program.cwd, check=True)
    assert where(program.cwd) == after


def test_a_command_that_only_moved_refs(program: Program) -> None:
    program.sh("git checkout -q --detach")
    before = where(program.cwd)
    program.sh("git commit -q --allow-empty -m two")
    assert where(program.cwd) != before
    program("undo", "@", "--with-git").went_well()
    assert where(program.cwd) == before


@pytest.mark.needs("overlay")
def test_a_world_that_was_applied_later(program: Program) -> None:
    before = where(program.cwd)
    program("-c", "echo 2 > f; git commit -qam two", "--hold").went_well()
    (world,) = program("world", "list", "--json").document["worlds"]
    (program.cwd / "staged").write_text("mine\n")
    git(program.cwd, "add", "staged")
    stuck = program.cwd / ".git/index.lock"
    stuck.touch()
    for why in (".git/index was written meanwhile; apply it again", "if none is, remove that file"):
        still = program("world", "apply", world["world_id"])
        assert still.status == 1
        assert why in still.errors
    stuck.unlink()
    program("world", "apply", world["world_id"])  # the lock's reason was the last one told
    applied = program("world", "apply", world["world_id"]).went_well()
    assert where(program.cwd) != before
    assert "your index was replaced" in applied.errors
    program("undo", "--with-git").went_well()
    assert where(program.cwd) == before


def test_rollback_over_several_commits(program: Program) -> None:
    before = where(program.cwd)
    program("checkpoint").went_well()
    for number in range(3):
        program.sh(f"echo {number} > g; git add g; git commit -qm {number}")
    program.sh("git commit -q --allow-empty -m empty")
    program("rollback", "--checkpoint", "1", "--with-git").went_well()
    assert where(program.cwd) == before


@pytest.mark.parametrize("since", ["git commit -q --allow-empty -m mine", "git checkout -qb mine"])
def test_what_moved_since_stays_and_nothing_else_moves(program: Program, since: str) -> None:
    program.sh("echo 2 > f; git commit -qam two; git tag new")
    subprocess.run(["sh", "-c", since], cwd=program.cwd, check=True)
    before = where(program.cwd)
    if "checkout" in since:  # the command itself did not touch HEAD: main may go back
        program("undo", "--with-git").went_well()
        assert where(program.cwd)[0] == before[0]
        return
    done = program("undo", "--with-git").went_well()
    assert where(program.cwd) == before
    assert "no ref of your git repository was moved" in done.errors


def test_head_that_moved_since(program: Program) -> None:
    program.sh("echo 2 > f; git checkout -qb other")
    git(program.cwd, "checkout", "-q", "main")
    before = where(program.cwd)
    done = program("undo", "--with-git").went_well()
    assert where(program.cwd) == before
    assert "HEAD has moved since" in done.errors and "symbolic-ref" in done.errors


def test_a_dry_run_moves_nothing_and_without_the_option_it_is_only_said(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    before = where(program.cwd)
    program("undo", "--with-git", "--dry-run").went_well()
    assert where(program.cwd) == before
    done = program("undo").went_well()
    assert where(program.cwd) == before
    assert "git update-ref refs/heads/main" in done.errors


def test_no_hook_of_the_users_runs(program: Program) -> None:
    hook = program.cwd / ".git/hooks/reference-transaction"
    program.sh("echo 2 > f; git commit -qam two")
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    before = where(program.cwd)
    program("undo", "--with-git").went_well()
    assert where(program.cwd) != before
    assert not list(program.cwd.glob("**/ran"))
