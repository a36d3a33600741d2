"""`--with-git`: the user's branches go back with the files, or stay and say why."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
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
    program("redo").is_clear(5, "`substrate redo --with-git`", "`substrate redo --files-only`")
    told = program("redo", "--files-only").went_well().errors
    assert where(program.cwd) != after
    command = told.partition("To put them back: ")[2].partition(" (or use --with-git")[0]
    subprocess.run(["sh", "-c", command], cwd=program.cwd, check=True)
    assert where(program.cwd) == after


def test_a_command_that_only_moved_refs(program: Program) -> None:
    program.sh("git checkout -q --detach")
    before = where(program.cwd)
    program.sh("git commit -q --allow-empty -m two")
    assert where(program.cwd) != before
    program("undo", "@", "--with-git").went_well()
    assert where(program.cwd) == before


@pytest.mark.parametrize("command", ["echo 2 > f; git commit -qam two", "git branch other"])
def test_the_command_that_takes_it_back_moves_the_branches_too(
    program: Program, command: str
) -> None:
    before = where(program.cwd)
    program.sh(command)
    after = where(program.cwd)
    state = before
    done = program("undo", "--with-git").went_well()
    for expected in (after, before, after):
        assert where(program.cwd) == state
        [line] = [line for line in done.text.splitlines() if line.startswith("to take this back")]
        done = program(*shlex.split(line.partition(": substrate ")[2])).went_well()
        state = expected
    assert where(program.cwd) == after


def test_a_second_rollback_does_not_ask_to_move_what_is_back(program: Program) -> None:
    program("checkpoint").went_well()
    program.sh("echo 2 > f; git commit -qam two")
    program("rollback", "--checkpoint", "1", "--with-git").went_well()
    assert "update-ref" not in program("rollback", "--checkpoint", "1").went_well().errors


def test_several_commits_left_where_they_are_go_back_by_one_command(program: Program) -> None:
    before = where(program.cwd)
    program("checkpoint").went_well()
    for number in range(3):
        program.sh(f"echo {number} > f; git commit -qam {number}")
    told = program("rollback", "--checkpoint", "1").went_well().errors
    command = told.partition("To put them back: ")[2].partition(" (or use --with-git")[0]
    subprocess.run(["sh", "-c", command], cwd=program.cwd, check=True)
    assert where(program.cwd) == before


def test_what_a_merge_writes_again_each_time_keeps_nothing_back(program: Program) -> None:
    """AUTO_MERGE is a file of the last merge, like ORIG_HEAD."""
    before = where(program.cwd)
    program.sh("echo 2 > f; git commit -qam two; git revert --no-edit HEAD; echo 3 > g")
    program.sh("git add g; git commit -qm g; git revert --no-edit HEAD; echo 4 > h")
    program("undo", "--with-git").went_well()
    program("undo", "--with-git").went_well()
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
    for why in (
        ".git/index was written since the command began; apply it again",
        "if none is, remove that file",
    ):
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


def test_a_branch_that_moved_again_stays_and_so_do_the_files(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two; git tag new")
    git(program.cwd, "commit", "-q", "--allow-empty", "-m", "mine")
    before = where(program.cwd)
    refused = program("undo", "--with-git").is_clear(5, "refs/heads/main moved again")
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "2\n"
    # Without the option only the way that works is named.
    said = program("undo").is_clear(5, "--files-only").errors
    assert "--with-git`" not in said
    command = refused.errors.partition("files alone with `substrate ")[2].partition("`")[0]
    program(*command.split()).went_well()
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "1\n"


def test_a_branch_that_the_command_left_alone_may_be_checked_out_since(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two; git tag new")
    git(program.cwd, "checkout", "-qb", "mine")
    head = where(program.cwd)[0]
    program("undo", "--with-git").went_well()
    assert where(program.cwd)[0] == head
    assert git(program.cwd, "log", "-1", "--format=%s", "main") == "one"


def test_head_that_moved_again(program: Program) -> None:
    program.sh("echo 2 > f; git checkout -qb other")
    git(program.cwd, "checkout", "-qb", "third")
    before = where(program.cwd)
    program("undo", "--with-git").is_clear(5, "HEAD moved again")
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "2\n"


def test_what_is_back_already_needs_no_word(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    git(program.cwd, "reset", "-q", "--soft", "HEAD~1")
    before = where(program.cwd)
    program("undo").went_well()
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "1\n"


def test_a_dry_run_moves_nothing_and_names_what_would_move(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    before = where(program.cwd)
    done = program("undo", "--with-git", "--dry-run").went_well()
    assert "would move back in your git repository: refs/heads/main" in done.errors
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "2\n"


def test_without_a_word_on_branches_nothing_is_changed(program: Program) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    before, log = where(program.cwd), program("log").out
    refused = program("undo", "--json")
    assert refused.status == 5
    assert refused.error["kind"] == "moved-branches"
    id_ = program.json("log", "--limit", "1")["commands"][0]["command_id"]
    for command in (f"substrate undo {id_} --with-git", f"substrate undo {id_} --files-only"):
        assert f"`{command}`" in refused.error["hint"]
    assert (where(program.cwd), program("log").out) == (before, log)
    assert (program.cwd / "f").read_text() == "2\n"
    done = program("undo", "--files-only").went_well()
    assert where(program.cwd) == before
    assert (program.cwd / "f").read_text() == "1\n"
    assert "git update-ref refs/heads/main" in done.errors


def test_named_paths_are_files_only(program: Program) -> None:
    program.sh("echo 2 > f; echo 2 > g; git add g; git commit -qam two")
    before = where(program.cwd)
    program("undo", "--path", "g").went_well()
    assert not (program.cwd / "g").exists()
    assert where(program.cwd) == before


@pytest.mark.parametrize(
    ("answer", "text", "subject"), [("b", "1\n", "one"), ("f", "1\n", "two"), ("c", "2\n", "two")]
)
def test_on_a_terminal_it_asks(program: Program, answer: str, text: str, subject: str) -> None:
    program.sh("echo 2 > f; git commit -qam two")
    asked, status = on_terminal(program, ["undo"], answer)
    assert "[b] files and branches / [f] files only / [c] cancel" in asked
    assert (program.cwd / "f").read_text() == text
    assert git(program.cwd, "log", "-1", "--format=%s") == subject
    assert status == (5 if answer == "c" else 0)


def on_terminal(program: Program, words: list[str], answer: str) -> tuple[str, int]:
    """What the program shows on a terminal whose user types `answer`, and its exit status."""
    import pty

    child, fd = pty.fork()
    if child == 0:
        os.chdir(program.cwd)
        os.environ["SUBSTRATE_DAEMON"] = "off"
        os.execv(sys.executable, [sys.executable, "-m", "substrate", *words])
    shown, is_answered = b"", False
    while True:
        try:
            more = os.read(fd, 65536)
        except OSError:  # how a terminal ends
            break
        if not more:
            break
        shown += more
        if b"cancel? " in shown and not is_answered:
            os.write(fd, answer.encode() + b"\n")
            is_answered = True
    os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_interface_for_programs_wants_a_word_too(program: Program) -> None:
    from substrate import History
    from substrate.errors import MovedBranchesError

    program("--session", "api", "-c", "echo 2 > f; git commit -qam two").went_well()
    history = History(program.cwd)
    with pytest.raises(MovedBranchesError):
        history.rollback_last_command(session_id="api")
    assert (program.cwd / "f").read_text() == "2\n"
    history.rollback_last_command(session_id="api", with_git=True)
    assert (program.cwd / "f").read_text() == "1\n"
    assert git(program.cwd, "log", "-1", "--format=%s") == "one"


@pytest.mark.needs("overlay", "root")
def test_asked_for_inside_a_world(program: Program) -> None:
    inner = shlex.join([sys.executable, "-m", "substrate"])
    program.sh("echo 2 > f; git commit -qam two")
    refused = program("--world", "-c", f"{inner} undo")
    assert refused.status == 5
    assert "--files-only" in refused.errors
    assert (program.cwd / "f").read_text() == "2\n"
    id_ = program.json("log", "--limit", "2")["commands"][1]["command_id"]
    program("--world", "-c", f"{inner} undo {id_} --files-only").went_well()
    assert (program.cwd / "f").read_text() == "1\n"
    assert git(program.cwd, "log", "-1", "--format=%s") == "two"


def test_no_hook_of_the_users_runs(program: Program) -> None:
    hook = program.cwd / ".git/hooks/reference-transaction"
    program.sh("echo 2 > f; git commit -qam two")
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    before = where(program.cwd)
    program("undo", "--with-git").went_well()
    assert where(program.cwd) != before
    assert not list(program.cwd.glob("**/ran"))
