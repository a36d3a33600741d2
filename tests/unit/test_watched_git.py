"""The watch on the suite's git calls can fail, and sees what the product runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import watched_git
from tests.unit.rewrite.scene import Scene

SOURCE = Path(__file__).parents[2] / "src" / "substrate"


@pytest.mark.parametrize(
    "words",
    [
        "clean -fd", "reset --hard HEAD", "stash", "stash push", "checkout -f main",
        "checkout --force main", "checkout -qf main", "add -A", "add --all .",
        "read-tree --reset x", "-c a=b --git-dir=x stash", "switch --discard-changes x",
        "restore a",
    ],
)  # fmt: skip
def test_what_is_forbidden(words: str) -> None:
    assert watched_git.forbidden(words.split())


@pytest.mark.parametrize(
    "words", ["add --refresh -- a", "update-index --refresh", "reset", "diff-files", "read-tree x"]
)
def test_what_is_not(words: str) -> None:
    assert not watched_git.forbidden(words.split())


@pytest.mark.needs("posix")
def test_a_forbidden_call_fails_the_run(
    git_calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond = os.environ["PATH"].removeprefix(f"{git_calls}{os.pathsep}")
    monkeypatch.setenv("PATH", beyond)  # this run's own watch is not to see it
    with pytest.raises(AssertionError, match="stash"), watched_git.watching(tmp_path):
        subprocess.run(["git", "--no-pager", "stash", "list"], cwd=tmp_path, check=False)


@pytest.mark.needs("posix")
def test_the_product_is_seen(git_calls: Path, tmp_path: Path) -> None:
    before = len(watched_git.calls(git_calls))
    scene = Scene(tmp_path / "project")
    scene.write("a", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    scene.write("u", "u\n")
    scene.rewrite()
    seen = [watched_git._subcommand(words)[0] for words in watched_git.calls(git_calls)[before:]]
    # No update-index: a few entries are changed in the index file itself.
    assert {"diff-files", "write-tree", "update-ref"} <= set(seen)
    assert os.environ["PATH"].startswith(str(git_calls))


def test_git_is_started_in_two_places_only() -> None:
    """Both say --no-pager first, which is what the watch goes by."""
    homes = {
        str(module.relative_to(SOURCE))
        for module in SOURCE.rglob("*.py")
        if re.search(r'\[\s*"git",', module.read_text("utf-8"))
    }
    assert homes == {"objects/git/git_command.py", "objects/git/worktree_git.py"}
    for home in homes:
        assert '"git", "--no-pager"' in (SOURCE / home).read_text("utf-8")
