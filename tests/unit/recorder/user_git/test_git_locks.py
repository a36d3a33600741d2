"""The user's git holds its lock for a moment: commands in worlds continue their own work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from substrate.recorder.command import begin_command, running_command
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.command.world_choice import Asked, world_for
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import git_locks
from substrate.recorder.user_git.git_locks import wait_for_the_index
from substrate.recorder.user_git.ref_moves import GitState
from substrate.system import clock, environment
from substrate.workspace.workspace_location import Workspace, find_workspace
from tests.unit.history.workbench import Bench

_MAKE = "git init -q -b main; echo a > a; git add .; git commit -qm one"
#: What a command says to have the next thing done to the real tree; it goes on once that is done.
_ASK = "ask() { echo > '%(outside)s/ask'; read -r _ < '%(outside)s/answer'; };"

_ATTEMPTS = 5


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["bash", "-ec", _MAKE], cwd=root, check=True)
    return Bench(root)


@contextmanager
def outside(bench: Bench, *steps: str) -> Iterator[str]:
    """Each step happens to the real tree when the command asks for it: see `_ASK`."""
    where = bench.root.parent
    for name in ("ask", "answer"):
        os.mkfifo(where / name)
    script = "".join(f"read -r _ < ../ask; {step}; echo > ../answer;" for step in steps)
    with subprocess.Popen(["bash", "-ec", script], cwd=bench.root) as helper:
        try:
            yield _ASK % {"outside": where}
            assert helper.wait(60) == 0
        finally:
            helper.kill()


def run(bench: Bench, line: str) -> Recording:
    place = Place.at(bench.root, environment.current(), None, "ada")
    request = CommandRequest(bench.root, shell=line, timeout_s=60)
    return record_command(place, world_for(place, Asked()), request)


def staged(bench: Bench) -> str:
    words = ["git", "diff", "--cached", "--name-only"]
    done = subprocess.run(words, cwd=bench.root, capture_output=True, text=True, check=True)
    return done.stdout


_STRATEGIES = [
    pytest.param(name, marks=pytest.mark.needs(f"world-{name}"))
    for name in ("overlay", "fuse-overlayfs", "copy-diff")
]


@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_a_lock_that_comes_and_goes_stops_no_command(
    bench: Bench, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSTRATE_WORLD_STRATEGY", strategy)
    with outside(bench, "touch .git/index.lock", "rm .git/index.lock") as ask:
        done = run(bench, f"{ask} echo b > b; ask; git add b; was=$?; ask; git add b; exit $was")
    assert (done.outcome.exit, done.held) == (0, "")
    assert staged(bench) == "b\n"


@pytest.mark.needs("world-overlay")
@pytest.mark.parametrize("how", ["an arrival's", "made after the look"])
def test_nor_does_a_lock_from_before_the_command(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command's change arrives just then, or the user stages something."""
    lock = bench.root / ".git" / "index.lock"
    looked = git_locks.not_held

    def not_held(workspace: Workspace, state: GitState) -> tuple[bytes, ...]:
        if how == "an arrival's":
            lock.symlink_to("substrate applies 4711")
            return looked(workspace, state)
        found = looked(workspace, state)
        lock.touch()
        return found

    monkeypatch.setattr(git_locks, "not_held", not_held)
    with outside(bench, "rm .git/index.lock") as ask:
        done = run(bench, f"{ask} echo b > b; git add b; was=$?; ask; exit $was")
    assert (done.outcome.exit, done.held) == (0, "")
    assert staged(bench) == "b\n"


def test_a_lock_that_was_taken_while_history_was_written_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(bench, "true")
    lock = bench.root / ".git" / "index.lock"
    begun = begin_command.begin
    helpers = []

    def then_locked(*args: Any, **more: Any) -> Any:
        out = begun(*args, **more)
        lock.touch()
        helpers.append(subprocess.Popen(["bash", "-c", f"sleep .3; rm {lock}"]))
        return out

    monkeypatch.setattr(running_command, "begin", then_locked)
    done = run(bench, "echo b > b; git add b")
    assert [one.wait(60) for one in helpers] == [0]
    assert (done.outcome.exit, done.held) == (0, "")
    assert staged(bench) == "b\n"


@pytest.mark.needs("world-overlay")
def test_nor_when_the_command_has_had_one_itself(bench: Bench) -> None:
    """The world's init must check before the user takes the lock; the user may be faster."""
    steps = ["touch .git/index.lock", "rm .git/index.lock"] * _ATTEMPTS
    once = "echo $RANDOM$RANDOM > b; git add b; ask; git add b && good=0; ask;"
    with outside(bench, *steps) as ask:
        # Each attempt in a view of its own: one that has failed stays as it is.
        done = [run(bench, f"{ask} good=1; {once} exit $good") for _ in range(_ATTEMPTS)]
    assert 0 in [one.outcome.exit for one in done]


@pytest.mark.needs("world-overlay")
def test_nor_does_one_on_a_branch(bench: Bench) -> None:
    locks = "HEAD.lock config.lock packed-refs.lock refs/heads/main.lock"
    with outside(bench, f"(cd .git; touch {locks})", f"(cd .git; rm {locks})") as ask:
        work = "git commit -qm two --allow-empty && git config a.b c && git pack-refs --all"
        done = run(bench, f"{ask} ask; {work}; was=$?; ask; exit $was")
    assert (done.outcome.exit, done.held) == (0, "")
    log = ["git", "log", "--format=%s"]
    said = subprocess.run(log, cwd=bench.root, capture_output=True, text=True, check=True).stdout
    assert said == "two\none\n"


@pytest.mark.needs("world-overlay")
def test_a_caller_that_has_just_begun_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user stages is there when the command begins, and stays."""
    run(bench, "true")
    lock, really = bench.root / ".git" / "index.lock", clock.sleep

    def sleep(seconds: float) -> None:
        really(seconds)
        if lock.exists():
            lock.unlink()
            subprocess.run(["git", "add", "his"], cwd=bench.root, check=True)

    (bench.root / "his").write_text("his\n")
    lock.touch()
    monkeypatch.setattr(clock, "sleep", sleep)
    done = run(bench, "echo mine > mine; git add mine")
    assert (done.outcome.exit, done.held) == (0, "")
    assert staged(bench) == "his\nmine\n"


@pytest.mark.needs("world-overlay")
def test_one_held_for_long_is_seen_until_it_goes(bench: Bench) -> None:
    lock = bench.root / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    with outside(bench, "rm .git/index.lock") as ask:
        done = run(bench, f"{ask} ask; echo b > b; git add b")
    assert (done.outcome.exit, done.held, staged(bench)) == (0, "", "b\n")
    lock.touch()
    os.utime(lock, (0, 0))
    clock.sleep(0.05)  # older than the command by more than a tick of the file system's clock
    done = run(bench, "git add b || rm .git/index.lock")
    assert (done.outcome.exit, lock.exists()) == (0, False)


@pytest.mark.needs("world-overlay")
def test_a_branch_with_an_odd_name_is_no_danger(bench: Bench) -> None:
    (bench.root / ".git" / "HEAD").write_bytes(b"ref: refs/heads/\xff\0/../../../x\n")
    assert run(bench, "true").outcome.exit == 0


@pytest.mark.needs("world-overlay")
def test_one_from_the_future_is_not_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may have left it: every later one would wait."""
    lock = bench.root / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, ns=(0, clock.now_ns() + 3600 * 10**9))
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    wait_for_the_index(find_workspace(bench.root))
    assert slept == []
