"""Plain `undo` takes back the newest command that changed anything, or changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Done, Program
from tests.unit.history.workbench import tree

USERS = pytest.mark.parametrize(
    "uid",
    [
        pytest.param(None, id="self"),
        pytest.param(NOBODY, id="user", marks=pytest.mark.needs("other-user")),
    ],
)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def far() -> Iterator[Path]:
    """Where another user may pass."""
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        yield base
    finally:
        shutil.rmtree(base)


@pytest.fixture
def make(far: Path) -> Callable[[int | None], Program]:
    """A program in a repository that belongs to that user."""

    def made(uid: int | None) -> Program:
        root = far / "project"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        git(root, "config", "user.name", "u")
        git(root, "config", "user.email", "u@example.org")
        (root / "a").write_text("1\n")
        git(root, "add", "a")
        git(root, "commit", "-qm", "one")
        home = far / "home"
        home.mkdir()
        if uid is not None:
            for path in (root, home, *root.rglob("*")):
                os.chown(path, uid, uid)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}
        return Program(root, env, uid)

    return made


@pytest.fixture
def program(make: Callable[[int | None], Program]) -> Program:
    return make(None)


def newest(program: Program) -> str:
    id_: str = program.json("log", "--limit", "1")["commands"][0]["command_id"]
    return id_


def printed(done: Done) -> list[list[str]]:
    """The calls of `substrate` that an error names, as words."""
    return [call.split() for call in re.findall(r"`substrate ([^`]+)`", done.errors)]


def unchanged(program: Program, words: list[str], *said: str) -> Done:
    """The call is refused, and neither the tree, the refs nor the log have changed."""
    before, log = tree(program.cwd), program("log").out
    done = program(*words).is_clear(5, *said)
    assert tree(program.cwd) == before
    assert program("log").out == log
    return done


@USERS
def test_a_commit_hides_the_edit_below_it(
    make: Callable[[int | None], Program], uid: int | None
) -> None:
    program = make(uid)
    program.sh("echo x >> a")
    edit = newest(program)
    program.sh("git commit -qam two")
    commit = newest(program)
    done = unchanged(program, ["undo"], commit, "refs/heads/main")
    assert printed(done) == [["undo", commit, "--with-git"], ["undo", edit]]
    unchanged(program, ["undo", "--files-only"], commit)
    moved = program("undo", "--with-git").went_well()
    assert "refs/heads/main" in moved.errors
    assert (program.cwd / "a").read_text() == "1\nx\n"
    assert program("diff", edit, "--stat").went_well()
    again = program("undo").went_well()
    assert (program.cwd / "a").read_text() == "1\n"
    assert "restored" in again.text


def test_each_printed_command_does_what_it_says(program: Program) -> None:
    program.sh("echo x >> a")
    program.sh("git commit -qam two")
    that, before_it = printed(unchanged(program, ["undo"]))
    program(*before_it).went_well()
    assert (program.cwd / "a").read_text() == "1\n"
    assert git(program.cwd, "log", "-1", "--format=%s") == "two"
    program(*that).went_well()
    assert git(program.cwd, "log", "-1", "--format=%s") == "one"
    program("undo").is_clear(4, "nothing to undo")


def test_commands_that_changed_nothing_are_counted(program: Program) -> None:
    program.sh("echo x >> a")
    for line in ("true", "ls", "git status", "git log --oneline", "touch a"):
        program.sh(line)
    assert program.json("undo", "--dry-run")["passed_over"] == 5
    done = program("undo").went_well()
    assert "passed over 5 newer commands that changed nothing" in done.errors
    assert (program.cwd / "a").read_text() == "1\n"


def test_refs_that_moved_back_and_forth(program: Program) -> None:
    program.sh("git commit -q --allow-empty -m two")
    program("undo", "--with-git").went_well()
    assert git(program.cwd, "log", "-1", "--format=%s") == "one"
    refused = unchanged(program, ["redo"], "moved only refs")
    assert printed(refused) == [["redo", "--with-git"]]
    program("redo", "--with-git").went_well()
    assert git(program.cwd, "log", "-1", "--format=%s") == "two"
    program("undo", "--with-git").went_well()
    assert git(program.cwd, "log", "-1", "--format=%s") == "one"
    program("undo", "--with-git").is_clear(4)


@pytest.mark.needs("overlay")
class TestHeld:
    def test_it_is_named_and_can_be_discarded(self, program: Program) -> None:
        program.sh("echo x >> a")
        edit = newest(program)
        program("-c", "echo y >> a", "--hold").went_well()
        refused = unchanged(program, ["undo"], newest(program), "is held")
        (world,) = program.json("world", "list")["worlds"]
        discard, apply, before_it = printed(refused)
        assert discard == ["world", "discard", world["world_id"]]
        assert apply == ["world", "apply", world["world_id"]]
        assert before_it == ["undo", edit]
        unchanged(program, ["undo", newest(program)], "is held")
        program(*discard).went_well()
        program("undo").went_well()
        assert (program.cwd / "a").read_text() == "1\n"

    def test_one_that_was_applied_is_undone(self, program: Program) -> None:
        program.sh("echo x >> a")
        program("-c", "echo y >> a", "--hold").went_well()
        (world,) = program.json("world", "list")["worlds"]
        program("world", "apply", world["world_id"]).went_well()
        program("undo").went_well()
        assert (program.cwd / "a").read_text() == "1\nx\n"


@pytest.mark.needs("overlay")
def test_what_only_changed_the_index(program: Program) -> None:
    program.sh("echo x >> a")
    edit = newest(program)
    program.sh("git add a")
    refused = unchanged(program, ["undo"], "its index or objects")
    assert printed(refused)[-1] == ["undo", edit]
    assert git(program.cwd, "diff", "--cached", "--name-only") == "a"


class TestWholeSessions:
    @pytest.fixture
    def two(self, program: Program) -> Program:
        for session, line in (("s-17a", "echo x >> a"), ("s-17a", "echo c > c"), ("s-2", "ls > b")):
            program("--session", session, "-c", line).went_well()
        return program

    @pytest.mark.parametrize("words", [["undo", "s-17"], ["undo", "--whole-session", "s-1"]])
    def test_a_prefix_is_refused_with_the_list(self, two: Program, words: list[str]) -> None:
        unchanged(two, words, "s-17a", "full id")

    def test_several_that_begin_so(self, two: Program) -> None:
        before = tree(two.cwd)
        two("undo", "s-").is_clear(4, "s-17a", "s-2")
        unchanged(two, ["undo", "--whole-session", "s-"], "s-17a", "s-2")
        assert tree(two.cwd) == before

    @pytest.mark.parametrize("words", [["undo", "s-17a"], ["undo", "--whole-session", "s-17a"]])
    def test_the_full_id_takes_it_back(self, two: Program, words: list[str]) -> None:
        two(*words).went_well()
        assert sorted(path.name for path in two.cwd.iterdir() if path.is_file()) == ["a", "b"]
        assert (two.cwd / "a").read_text() == "1\n"

    @pytest.mark.parametrize("by", ["option", "environment"])
    def test_naming_the_session_takes_one_command_only(self, two: Program, by: str) -> None:
        if by == "option":
            two("undo", "--session", "s-17a").went_well()
        else:
            two("undo", env={"SUBSTRATE_SESSION_ID": "s-17a"}).went_well()
        assert not (two.cwd / "c").exists()
        assert (two.cwd / "a").read_text() == "1\nx\n"
        assert (two.cwd / "b").exists()

    def test_a_command_and_a_session_at_once(self, two: Program) -> None:
        two("undo", "@", "--whole-session", "s-2").is_clear(2, "not several")

    def test_going_back_to_a_closed_one_does_not_open_it(self, two: Program) -> None:
        two("session", "close", "s-17a").went_well()
        two("session", "close", "s-2").went_well()
        two("--session", "s-3", "-c", "echo z > z").went_well()
        two("session", "close", "s-3").went_well()
        two("rollback", "--session", "s-2").went_well()
        assert not (two.cwd / "z").exists()
        assert all(one["closed"] for one in two.json("session", "list")["sessions"])

    def test_an_open_one_is_refused_and_the_printed_command_works(self, two: Program) -> None:
        refused = unchanged(two, ["rollback", "--session", "s-17a"], "is still open")
        assert ["undo", "s-17a"] in printed(refused)
        two("undo", "s-17a").went_well()
        assert not (two.cwd / "c").exists()
