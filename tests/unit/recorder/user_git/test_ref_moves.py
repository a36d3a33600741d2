"""The values of the user's refs, and what a command moved: compared with git's own output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.recorder.user_git.ref_moves import git_effect, git_state
from substrate.workspace.workspace_location import find_workspace


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    for name in ("packed", "loose/deep", "both"):
        git(root, "branch", name)
    git(root, "tag", "-a", "-m", "t", "v1")
    git(root, "pack-refs", "--all")
    git(root, "commit", "-q", "--allow-empty", "-m", "two")
    git(root, "branch", "-f", "both", "main")
    git(root, "update-ref", "refs/remotes/origin/main", "main")
    git(root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    return root


def test_every_ref_as_git_says_it(project: Path) -> None:
    listed = git(project, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    wanted = dict(line.split() for line in listed)
    symbolic = "refs/remotes/origin/HEAD"
    wanted[symbolic] = "ref: refs/remotes/origin/main"
    state = git_state(find_workspace(project))
    assert state.refs == wanted
    assert state.head == "ref: refs/heads/main"


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        (("pack-refs", "--all"), []),
        (("branch", "-D", "packed"), ["refs/heads/packed"]),
        (("branch", "-D", "both"), ["refs/heads/both"]),
        (("branch", "-m", "packed", "other"), ["refs/heads/other", "refs/heads/packed"]),
        (("update-ref", "refs/remotes/origin/main", "main~1"), ["refs/remotes/origin/main"]),
        (("commit", "-q", "--allow-empty", "-m", "three"), ["refs/heads/main"]),
        (("status",), []),
    ],
)
def test_what_moved(project: Path, words: tuple[str, ...], moved: list[str]) -> None:
    workspace = find_workspace(project)
    before = git_state(workspace)
    git(project, *words)
    effect = git_effect(before, git_state(workspace))
    found = effect.get("refs", {})
    assert isinstance(found, dict)
    assert sorted(found) == moved
    for name, (old, new) in found.items():
        assert old == before.refs.get(name)
        exists = subprocess.run(
            ["git", "rev-parse", "-q", "--verify", name], cwd=project, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert (new or "") == exists.stdout.strip()


def test_odd_things_among_the_refs_are_no_trouble(project: Path) -> None:
    (project / ".git/refs/heads/broken").write_bytes(b"\xff\n")
    (project / ".git/refs/heads/main.lock").write_bytes(b"")
    (project / ".git/packed-refs").write_bytes(b"nonsense\n\n# note\n")
    state = git_state(find_workspace(project))
    assert "refs/heads/main" in state.refs
    assert "refs/heads/main.lock" not in state.refs


def test_a_huge_head_is_not_read_whole(project: Path) -> None:
    """It would be stored in the span and the ledger, and read again by every later command."""
    os.truncate(project / ".git/HEAD", 1 << 28)
    assert len(git_state(find_workspace(project)).head) < 10_000


@pytest.mark.needs("symlinks")
@pytest.mark.parametrize("where", ["HEAD", "packed-refs", "refs", "refs/heads/leak"])
def test_what_a_link_leads_to_is_not_reported(project: Path, tmp_path: Path, where: str) -> None:
    """Commands see the values of refs, including commands that may not read everything."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text(f"{'0' * 40} SECRET\n")
    there = project / ".git" / where
    if there.exists():
        there.rename(tmp_path / "away")
    there.symlink_to(secrets if where == "refs" else secrets / "key")
    state = git_state(find_workspace(project))
    assert "SECRET" not in str(state) + str(state.refs) and "refs/key" not in state.refs
    if where == "refs/heads/leak":
        there.unlink()
        there.write_text("SECRET\n")
        assert "SECRET" not in str(git_state(find_workspace(project)))


@pytest.mark.needs("symlinks")
def test_a_head_that_is_a_link_as_git_once_made_it(project: Path) -> None:
    (project / ".git/HEAD").unlink()
    (project / ".git/HEAD").symlink_to("refs/heads/main")
    assert git_state(find_workspace(project)).head == "ref: refs/heads/main"
