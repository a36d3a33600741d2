"""An agent's own git work in a world: afterwards the repository is as after a bare run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from substrate.history.arrival import bring_into_tree as arriving
from substrate.model.paths import RelPath
from substrate.recorder.arrival import bring_in
from substrate.recorder.arrival.held_worlds import apply_world
from substrate.recorder.reversals import restore_recovery
from substrate.recorder.session_context import Place
from substrate.system import clock, environment
from substrate.workspace.apply.apply import Applier, Report, Staged
from substrate.workspace.apply.plan import Times
from substrate.workspace.paths.read_node import blob_id
from tests.unit.history.workbench import Bench
from tests.unit.recorder.arrival.test_bring_in import do, span

pytestmark = pytest.mark.needs("overlay", "root", "mounts")

_MAKE = """
git init -q -b main; echo a > a; mkdir d; echo b > d/b; git add .; git commit -qm one
echo c > c; git add .; git commit -qm two; git branch side HEAD~1; git tag t HEAD~1
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # The same commits in both repositories.
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["bash", "-ec", _MAKE], cwd=root, check=True)
    made = Bench(root)
    do(made, "true")
    return made


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def view(root: Path) -> dict[str, str]:
    """What git says of a repository."""
    return {
        "head": (root / ".git/HEAD").read_text(),
        "refs": git(root, "for-each-ref"),
        "log": git(root, "log", "--all", "--oneline"),
        "reflog": git(root, "reflog", "--format=%H %gs"),
        "status": git(root, "status", "--porcelain"),
        "index": git(root, "ls-files", "-s"),
        "stash": git(root, "stash", "list"),
        "fsck": git(root, "fsck", "--strict", "--full"),
    }


WORK = {
    "commit": "echo more >> a; git add a; git commit -qm three",
    "commit all, new files": "mkdir n; echo n > n/n; git add -A; git commit -qm new",
    "checkout": "git checkout -q side",
    "checkout a new branch": "git checkout -qb new; echo n > n; git add n; git commit -qm n",
    "reset hard": "git reset -q --hard HEAD~1",
    "stash": "echo more >> a; git stash -q",
    "stash and pop": "echo more >> a; git stash -q; git stash pop -q",
    "branches go": "git branch -q -D side; git tag -d t > /dev/null",
    "a branch becomes a directory": "git branch -q -D side; git branch side/ways",
    "gc": "git gc -q --prune=now",
    "pack refs": "git pack-refs --all --prune",
    "merge": "git checkout -q side; echo s > s; git add s; git commit -qm s; git merge -q main",
    "rebase": "git checkout -q side; echo s > s; git add s; git commit -qm s; git rebase -q main",
    "add only": "echo n > n; git add n",
    "remove": "git rm -q -r d; git commit -qm gone",
    "clean": "echo n > n; git clean -fdxq",
    "worktree": "git worktree add -q wt side; git worktree remove wt",
    "config": "git config user.name Eve; git remote add o /nowhere",
    "amend": "git commit -q --amend -m other",
    "submodule-like clone": "git clone -q . sub",
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_as_after_a_bare_run(bench: Bench, name: str) -> None:
    bare = bench.root.with_name("bare")
    subprocess.run(["cp", "-a", str(bench.root), str(bare)], check=True)
    script = WORK[name]
    subprocess.run(["bash", "-ec", script], cwd=bare, check=True)
    done = do(bench, script)
    assert done.held == ""
    assert view(bench.root) == view(bare)
    if "clone" in name:
        expected = view(bare / "sub")
        expected["reflog"] = expected["reflog"].replace(str(bare), str(bench.root))
        assert view(bench.root / "sub") == expected


def stale(root: Path) -> str:
    """The files whose stat data in the index is stale."""
    return git(root, "diff-files", "--name-only")


def test_a_status_refreshes_the_index_as_a_bare_one_would(bench: Bench, tmp_path: Path) -> None:
    os.utime(bench.root / "a", (1, 1))
    assert stale(bench.root) == "a\n"
    do(bench, f"git status > /dev/null; stat -c %y .git/index > {tmp_path}/written")
    assert stale(bench.root) == ""
    # By that git knows which of the files may have changed since.
    seen = subprocess.check_output(["stat", "-c", "%y", ".git/index"], cwd=bench.root, text=True)
    assert seen == (tmp_path / "written").read_text()
    assert (span()["fs_diff"], span()["conflicts"]) == (
        {"writes": [], "mods": [], "deletes": [], "truncated": False},
        [],
    )
    before = (bench.root / ".git/index").stat()
    do(bench, "git status > /dev/null")
    assert (bench.root / ".git/index").stat() == before


def test_what_a_checkout_wrote_is_read_by_one_status_only(bench: Bench) -> None:
    # It looks different from the next second on: that is how close git looks.
    do(bench, "echo x > c; git checkout -q c", lambda: time.sleep(1.1))
    assert stale(bench.root) == "c\n"
    do(bench, "git status > /dev/null")
    assert stale(bench.root) == ""


@pytest.mark.parametrize("what", ["staged", "lock", "touched"])
def test_a_refresh_gives_way_to_a_command_that_works_there(bench: Bench, what: str) -> None:
    """The user stages a file; or is about to; or the refresh is out of date."""
    git(bench.root, "update-index", "--refresh")
    os.utime(bench.root / "a", (1, 1))
    index = bench.root / ".git" / "index"
    if what == "staged":
        (bench.root / "n").write_text("mine\n")
    left = {}

    def meanwhile() -> None:
        if what == "staged":
            git(bench.root, "add", "n")
        elif what == "lock":
            (bench.root / ".git" / "index.lock").touch()
        else:
            os.utime(bench.root / "a", (2, 2))
        left[index] = index.read_bytes()

    done = do(bench, "git status > /dev/null", meanwhile)
    assert span()["conflicts"] == []
    assert done.held == ""
    assert index.read_bytes() == left[index]


@pytest.mark.parametrize("what", ["staged", "lock"])
def test_a_refresh_gives_way_until_the_last_moment(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of files may arrive between the look at the repository and the index."""
    git(bench.root, "update-index", "--refresh")
    os.utime(bench.root / "a", (1, 1))
    index, lock = bench.root / ".git" / "index", bench.root / ".git" / "index.lock"
    (bench.root / "mine").write_text("mine\n")
    really, left = arriving.arrive, {}

    def arrive(*given: Any) -> arriving.Arrived:
        if what == "staged":
            git(bench.root, "add", "mine")
        else:
            lock.write_text("mine")
        left[index] = index.read_bytes()
        return really(*given)

    monkeypatch.setattr(bring_in, "arrive", arrive)
    done = do(bench, "git status > /dev/null; echo new > new")
    assert (bench.root / "new").read_text() == "new\n"
    assert done.held == ""
    assert index.read_bytes() == left[index]
    assert lock.exists() == (what == "lock")


def test_a_refresh_hides_no_edit(bench: Bench) -> None:
    """Git reads files that were written in the second of the index; not once that is younger."""
    git(bench.root, "config", "core.checkStat", "minimal")
    os.utime(bench.root / "a", (100, 100))
    git(bench.root, "update-index", "--refresh")
    os.utime(bench.root / ".git/index", (100, 100))
    os.utime(bench.root / "c", (1, 1))

    def save() -> None:
        (bench.root / "new").write_text("z\n")
        os.utime(bench.root / "new", (100, 100))
        (bench.root / "new").rename(bench.root / "a")

    do(bench, "git status > /dev/null", save)
    assert git(bench.root, "status", "--porcelain") == " M a\n"


def test_the_effect_is_in_the_span(bench: Bench) -> None:
    old = git(bench.root, "rev-parse", "HEAD").strip()
    do(bench, "git commit -q --allow-empty -m three")
    new = git(bench.root, "rev-parse", "HEAD").strip()
    assert span()["git"] == {"refs": {"refs/heads/main": [old, new]}}


def test_both_sides_commit(bench: Bench) -> None:
    def commit() -> None:
        git(bench.root, "commit", "-q", "--allow-empty", "-m", "mine")

    done = do(bench, "echo its > its; git add its; git commit -qm its", commit)
    assert "refs/heads/main was moved since the command began" in done.held
    assert not (bench.root / "its").exists()
    assert git(bench.root, "log", "-1", "--format=%s").strip() == "mine"


@pytest.mark.parametrize("script", ["git add its", "git add its; git commit -qm its"])
def test_both_sides_stage_different_paths(bench: Bench, script: str) -> None:
    (bench.root / "mine").write_text("mine\n")

    def stage() -> None:
        git(bench.root, "add", "mine")
        git(bench.root, "rm", "-q", "--cached", "c")

    done = do(bench, f"echo its > its; {script}", stage)
    assert done.held == ""
    assert "merged with what others staged while it ran: .git/index" in done.notes
    staged = git(bench.root, "ls-files", "-s").splitlines()
    assert [row.split()[3] for row in staged] == ["a", "d/b", "its", "mine"]
    its = "" if "commit" in script else "A  its\n"
    assert git(bench.root, "status", "--porcelain") == f"D  c\n{its}A  mine\n?? c\n"
    assert git(bench.root, "fsck", "--strict", "--full") == ""


def test_an_edit_that_git_could_not_have_noticed_is_noticed_after_a_merge(bench: Bench) -> None:
    """Of files written when the index was, git is not sure, by the index's time."""
    (bench.root / "mine").write_text("mine\n")

    def stage_and_edit() -> None:
        git(bench.root, "add", "mine")
        (bench.root / "mine").write_text("MINE\n")

    for _ in range(5):
        done = do(bench, "date +%N > its; git add its", stage_and_edit)
        assert done.held == ""
        assert "AM mine" in git(bench.root, "status", "--porcelain")
        (bench.root / "mine").write_text("mine\n")


@pytest.mark.parametrize("ours", ["echo mine > a; git add a", "git rm -q --cached a"])
def test_both_sides_stage_the_same_path(bench: Bench, ours: str) -> None:
    def stage() -> None:
        subprocess.run(["bash", "-ec", ours], cwd=bench.root, check=True)

    done = do(bench, "echo its > a; git add a", stage)
    assert ".git/index was written since the command began" in done.held


@pytest.mark.parametrize("is_its", [True, False])
def test_one_side_commits_and_the_other_goes_to_another_branch(bench: Bench, is_its: bool) -> None:
    """Neither moved what the other did; but what one has committed is not to be staged here."""
    commit = "echo new > a; git commit -qam new"
    switch = "git checkout -q other"
    bash(bench, "git checkout -qb other; git rm -q c; git commit -qm gone; git checkout -q -")
    its, ours = (commit, switch) if is_its else (switch, commit)
    done = do(bench, its, lambda: bash(bench, ours))
    assert ".git/index was written since the command began" in done.held
    assert git(bench.root, "status", "--porcelain") == ""


def bash(bench: Bench, script: str) -> None:
    subprocess.run(["bash", "-ec", script], cwd=bench.root, check=True)


def test_an_index_is_not_put_together_for_a_world_that_is_to_wait(bench: Bench) -> None:
    (bench.root / "mine").write_text("mine\n")

    def stage() -> None:
        git(bench.root, "add", "mine")

    done = do(bench, "echo its > its; git add its", stage, hold=True)
    assert done.held == "asked for with --hold"
    (upper,) = (bench.root / ".substrate-git" / "worlds").glob("*/upper")
    listed = subprocess.run(["git", "ls-files"], cwd=bench.root, capture_output=True, text=True,
                            env={**os.environ, "GIT_INDEX_FILE": str(upper / ".git/index")},
                            check=True)  # fmt: skip
    assert "mine" not in listed.stdout and "its" in listed.stdout


_COMMIT = "echo its > its; git add its; git commit -qm its"
_OURS = {
    "staged": (["add", "mine"], ".git/index was written since the command began"),
    "committed": (["commit", "-q", "--allow-empty", "-m", "mine"], "refs/heads/main was moved"),
}


@pytest.mark.parametrize("what", _OURS)
def test_work_in_the_last_moment_is_not_overwritten(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look at the repository, before anything arrives."""
    words, reason = _OURS[what]
    (bench.root / "mine").write_text("mine\n")
    really, left = arriving.arrive, {}

    def arrive(*given: Any) -> arriving.Arrived:
        git(bench.root, *words)
        left.update(view(bench.root))
        return really(*given)

    monkeypatch.setattr(bring_in, "arrive", arrive)
    done = do(bench, _COMMIT)
    assert reason in done.held
    assert view(bench.root) == left
    assert not (bench.root / "its").exists()


def test_no_git_comes_in_between(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.root / "mine").write_text("mine\n")
    really, refused = Applier.carry_out, []

    def carry_out(self: Applier, staged: Staged, times: Mapping[RelPath, Times]) -> Report:
        add = subprocess.run(
            ["git", "add", "mine"], cwd=bench.root, capture_output=True, check=False
        )
        refused.append(add.stderr)
        return really(self, staged, times)

    monkeypatch.setattr(Applier, "carry_out", carry_out)
    assert do(bench, _COMMIT).held == ""
    assert [b"index.lock" in said for said in refused] == [True]
    assert not os.path.lexists(bench.root / ".git/index.lock")
    git(bench.root, "add", "mine")
    assert git(bench.root, "log", "-1", "--format=%s") == "its\n"


@pytest.mark.parametrize(("script", "is_locked"), [("git branch new", False), (_COMMIT, True)])
def test_a_branch_alone_does_not_stop_staging(
    bench: Bench, script: str, is_locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, seen = Applier.carry_out, []

    def carry_out(self: Applier, staged: Staged, times: Mapping[RelPath, Times]) -> Report:
        seen.append(os.path.lexists(bench.root / ".git/index.lock"))
        return really(self, staged, times)

    monkeypatch.setattr(Applier, "carry_out", carry_out)
    assert do(bench, script).held == ""
    assert seen == [is_locked]


def test_a_git_at_work_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, really = bench.root / ".git" / "index.lock", clock.sleep

    def sleep(seconds: float) -> None:
        lock.unlink(missing_ok=True)
        really(seconds)

    monkeypatch.setattr(clock, "sleep", sleep)
    assert do(bench, _COMMIT, lock.touch).held == ""
    assert git(bench.root, "log", "-1", "--format=%s") == "its\n"


def test_if_it_takes_long_the_world_is_held(bench: Bench) -> None:
    lock = bench.root / ".git" / "index.lock"
    done = do(bench, _COMMIT, lock.touch)
    assert "index.lock exists" in done.held
    assert lock.exists()
    assert not (bench.root / "its").exists()
    lock.unlink()
    waiting = Place.at(bench.root, environment.current(), None, "ada")
    assert apply_world(waiting, done.world_id)[1].held == ""
    assert git(bench.root, "log", "-1", "--format=%s") == "its\n"


def commit_and_be_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Before or after the tree is changed, once that is announced."""
    really = Applier.carry_out

    def carry_out(self: Applier, staged: Staged, times: Mapping[RelPath, Times]) -> Report:
        if when == "after":
            really(self, staged, times)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(Applier, "carry_out", carry_out)
        do(bench, _COMMIT)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_leaves_no_lock(bench: Bench, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_and_be_killed(bench, monkeypatch, when)
    assert os.path.lexists(bench.root / ".git/index.lock")
    do(bench, "true")
    assert not os.path.lexists(bench.root / ".git/index.lock")
    assert git(bench.root, "log", "-1", "--format=%s") == "its\n"
    assert git(bench.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["index.lock", "refs/heads/main.lock", "modules/m/index.lock"])
def test_a_lock_that_the_command_did_not_see_stays(bench: Bench, name: str) -> None:
    """It removed an old one. A whiteout is left as well if another's comes while a git of the
    world has the same one."""
    lock = bench.root / ".git" / name
    lock.parent.mkdir(parents=True, exist_ok=True)

    def lock_again() -> None:
        lock.unlink()
        lock.write_text("mine")

    lock.touch()
    assert do(bench, f"rm .git/{name}; echo b > b", lock_again).held == ""
    assert lock.read_text() == "mine"
    assert (bench.root / "b").exists()
    clock.sleep(0.05)  # older than the next command, by the clock of the file system
    assert do(bench, f"rm .git/{name}").held == ""
    assert not lock.exists()


def test_the_guard_is_kept_where_a_lock_came_and_went(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, seen = bench.root / ".git/index.lock", []
    really = Applier.carry_out

    def carry_out(self: Applier, staged: Staged, times: Mapping[RelPath, Times]) -> Report:
        seen.append(os.path.lexists(lock))
        return really(self, staged, times)

    monkeypatch.setattr(Applier, "carry_out", carry_out)
    lock.touch()
    assert do(bench, "rm .git/index.lock; " + _COMMIT, lock.unlink).held == ""
    assert seen == [True]


def test_only_our_own_lock_is_taken_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git advises to remove a lock that is in the way; then another git has it."""
    lock, really = bench.root / ".git/index.lock", Applier.carry_out

    def carry_out(self: Applier, staged: Staged, times: Mapping[RelPath, Times]) -> Report:
        lock.unlink()
        lock.write_text("mine")
        return really(self, staged, times)

    monkeypatch.setattr(Applier, "carry_out", carry_out)
    do(bench, _COMMIT)
    assert lock.read_text() == "mine"


def waiting_worlds(bench: Bench) -> list[Path]:
    return list((bench.root / ".substrate-git/worlds").iterdir())


@pytest.mark.parametrize("what", _OURS)
def test_a_kill_while_a_git_is_waited_for_overwrites_nothing(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = bench.root / ".git/index.lock"

    def sleep(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(clock, "sleep", sleep)
        do(bench, _COMMIT, lock.touch)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    lock.unlink()
    (bench.root / "mine").write_text("mine\n")
    git(bench.root, *_OURS[what][0])
    left = view(bench.root)
    do(bench, "true")
    assert view(bench.root) == left
    assert not (bench.root / "its").exists()
    assert len(waiting_worlds(bench)) == 1


@pytest.mark.parametrize("what", _OURS)
def test_a_kill_and_then_work_of_the_users(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrival was announced. The user removed the leftover lock, as git advises."""
    lock = bench.root / ".git/index.lock"

    commit_and_be_killed(bench, monkeypatch, "before")
    lock.unlink()
    (bench.root / "mine").write_text("mine\n")
    git(bench.root, *_OURS[what][0])
    left = view(bench.root)
    written = (bench.root / ".git/index").stat().st_mtime_ns
    do(bench, "true")
    assert (bench.root / ".git/index").stat().st_mtime_ns == written
    found = view(bench.root)
    assert (found["refs"], found["index"]) == (left["refs"], left["index"])
    assert (bench.root / "its").read_text() == "its\n"
    assert len(waiting_worlds(bench)) == 1


def test_a_hard_killed_git_leaves_its_lock_as_it_would_bare(bench: Bench) -> None:
    do(bench, "true > .git/index.lock")
    assert (bench.root / ".git/index.lock").exists()


def test_an_undo_leaves_the_repository_alone_and_says_nothing_of_its_parts(bench: Bench) -> None:
    do(bench, "echo its > its; git add its; git commit -qm its; git branch -q -D side")
    head = git(bench.root, "rev-parse", "HEAD")
    outcome = bench.undo(files_only=True)
    assert not (bench.root / "its").exists()
    assert git(bench.root, "rev-parse", "HEAD") == head
    assert not any(".git" in note for note in outcome.notes)


def test_a_nested_repository_that_was_removed_comes_back_whole(bench: Bench) -> None:
    git(bench.root, "clone", "-q", ".", "sub")
    bench.settle()
    expected = view(bench.root / "sub")
    do(bench, "rm -rf sub")
    assert not (bench.root / "sub").exists()
    bench.undo()
    assert view(bench.root / "sub") == expected


@pytest.mark.parametrize("script", ["git stash -q", "git checkout -q a", "git reset -q --hard"])
def test_an_edit_that_is_not_recorded_is_put_back_as_bare(bench: Bench, script: str) -> None:
    (bench.root / "a").write_text("mine\n")
    time.sleep(0.05)  # older than the start by more than a tick of the file system's clock
    do(bench, script)
    assert (bench.root / "a").read_text() == "a\n"
    bench.undo(files_only=True)
    assert (bench.root / "a").read_text() == "mine\n"


def test_a_file_that_was_removed_by_hand_is_checked_out(bench: Bench) -> None:
    (bench.root / "a").unlink()
    time.sleep(0.05)
    do(bench, "git checkout -q a")
    assert (bench.root / "a").read_text() == "a\n"


def test_an_edit_in_between_is_not_put_back_by_a_command_that_did_not_see_it(bench: Bench) -> None:
    def edit() -> None:
        (bench.root / "a").write_text("mine\n")

    do(bench, "touch a", edit)
    assert (bench.root / "a").read_text() == "mine\n"


def git_blob(text: str) -> str:
    return blob_id(text.encode()).hex()


def add_many(root: Path) -> None:
    for number in range(300):  # some in each of the directories that gc removes
        (root / f"mine{number}").write_text(f"mine {number}\n")
    git(root, "add", ".")


@pytest.mark.parametrize(
    "more", ["", "; for i in $(seq 99); do echo $i | git hash-object -w --stdin; done"]
)
def test_objects_added_while_a_world_collects_garbage_stay(bench: Bench, more: str) -> None:
    git(bench.root, "pack-refs", "--all")
    done = do(bench, f"git gc -q --prune=now{more} > /dev/null", lambda: add_many(bench.root))
    assert done.held == ""
    git(bench.root, "fsck", "--full", "--strict")
    assert git(bench.root, "ls-files", "-s").count("mine") == 300
    assert git(bench.root, "write-tree")
    if more:
        for number in range(1, 100):
            name = git_blob(f"{number}\n")
            assert git(bench.root, "cat-file", "-p", name) == f"{number}\n"


@pytest.mark.parametrize("script", ["git branch -q -D f/old", "git pack-refs --all --prune"])
def test_a_branch_made_beside_one_that_goes_stays(bench: Bench, script: str) -> None:
    git(bench.root, "branch", "f/old")
    time.sleep(0.05)

    def branch() -> None:
        git(bench.root, "branch", "f/new")

    done = do(bench, script, branch)
    assert "changed on both sides" in done.held
    assert "f/new" in git(bench.root, "branch")


def test_a_commit_made_while_a_world_waits_is_not_taken_from_its_branch(bench: Bench) -> None:
    done = do(bench, "echo its > its; git add its; git commit -qm its", hold=True)
    git(bench.root, "commit", "-q", "--allow-empty", "-m", "mine")
    mine = git(bench.root, "rev-parse", "HEAD").strip()
    place = Place.at(bench.root, environment.current(), None, "ada")
    _, brought = apply_world(place, done.world_id)
    assert "refs/heads/main was written since the command began" in brought.held
    assert git(bench.root, "rev-parse", "HEAD").strip() == mine
    _, brought = apply_world(place, done.world_id)  # now the user knows
    assert git(bench.root, "log", "-1", "--format=%s").strip() == "its"
    assert any(mine in note for note in brought.notes)


def test_a_world_that_waited_arrives_if_no_other_worked_in_the_repository(bench: Bench) -> None:
    time.sleep(0.05)
    done = do(bench, "echo its > its; git add its; git commit -qm its", hold=True)
    place = Place.at(bench.root, environment.current(), None, "ada")
    assert apply_world(place, done.world_id)[1].held == ""
    assert git(bench.root, "log", "-1", "--format=%s").strip() == "its"
    assert git(bench.root, "status", "--porcelain") == ""


def test_a_nested_repository_that_a_user_commits_to_is_not_taken_away(bench: Bench) -> None:
    git(bench.root, "clone", "-q", ".", "sub")
    time.sleep(0.05)

    def commit() -> None:
        (bench.root / "sub/mine").write_text("mine\n")
        git(bench.root / "sub", "add", "mine")
        git(bench.root / "sub", "commit", "-q", "-m", "mine")

    done = do(bench, "rm -rf sub", commit)
    assert git(bench.root / "sub", "log", "-1", "--format=%s").strip() == "mine"
    assert (bench.root / "sub/mine").exists()
    assert any("conflict: sub/.git" in note for note in done.notes)
    assert done.status == 122


@pytest.mark.parametrize("script", ["rm -rf node_modules", "echo its > node_modules/x"])
def test_excluded_work_that_goes_to_the_trash_is_named(bench: Bench, script: str) -> None:
    (bench.root / "node_modules").mkdir()
    (bench.root / "node_modules/x").write_text("x\n")
    time.sleep(0.05)
    assert not any("trash" in note for note in do(bench, "echo y > node_modules/x").notes)

    def edit() -> None:
        (bench.root / "node_modules/x").write_text("mine\n")

    time.sleep(0.05)
    done = do(bench, script, edit)
    assert any("in the trash: node_modules" in note for note in done.notes)
    place = Place.at(bench.root, environment.current(), None, "ada")
    restore_recovery(place, done.command_id, (), dry_run=False)
    assert (bench.root / "node_modules/x").read_text() == "mine\n"


def test_restoring_a_conflict_leaves_the_repository_as_it_is(bench: Bench) -> None:
    def edit() -> None:
        (bench.root / "c").write_text("mine\n")

    done = do(bench, "echo its > c; git gc -q --prune=now; git commit -qm its --allow-empty", edit)
    assert list(map(str, span()["conflicts"])) == ["c"]  # type: ignore[call-overload]
    add_many(bench.root)
    git(bench.root, "commit", "-q", "-m", "mine")
    before = view(bench.root)
    place = Place.at(bench.root, environment.current(), None, "ada")
    restore_recovery(place, done.command_id, (), dry_run=False)
    assert (bench.root / "c").read_text() == "its\n"
    assert {**view(bench.root), "status": ""} == {**before, "status": ""}
