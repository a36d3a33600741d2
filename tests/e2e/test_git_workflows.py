"""Git through Substrate ends byte for byte as git alone does, for root and for an ordinary user.

Each workflow of the table runs twice: recorded step by step in one repository, and bare in its
twin. After every step the two agree in exit status, output, work tree, refs, index, reflogs, stash
and configuration. `undo` then takes back the last step or changes nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.daemons import Daemon, daemon_in
from tests.e2e.git_workflows import SETUP, WORKFLOWS

pytestmark = pytest.mark.needs("linux", "world-overlay")

#: Substrate's own, and what is compared by its meaning: objects by id, an index by its entries.
_OWN = {".substrate-git", ".ctx", ".manifold"}
_HIDDEN = {f"{name}/" for name in _OWN}
_BY_MEANING = {"objects", "index"}
_FIRST_DATE = 1_700_000_000
#: On a busy machine `git status` says how many seconds it took: each time another number.
_QUIET = {
    "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "advice.statusUoption",
    "GIT_CONFIG_VALUE_0": "false",
}  # fmt: skip


class State(NamedTuple):
    #: Path -> mode and content of every file and link of the work tree.
    files: dict[str, tuple[str, bytes]]
    #: The same of what is in ``.git``, the repositories of submodules and worktrees included.
    git: dict[str, tuple[str, bytes]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as made:
        yield made


def bare(where: Path, line: str, number: int = 0) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line], cwd=where, capture_output=True, check=False, env=dated(number),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def dated(number: int) -> dict[str, str]:
    when = f"@{_FIRST_DATE + number} +0000"
    return {**os.environ, **_QUIET, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}


def template(made_by: pytest.TempPathFactory) -> Path:
    """The repository that every workflow begins with, and what is beside it; made once."""
    where = made_by.getbasetemp() / "git-workflows"
    if not where.exists():
        where.mkdir()
        made = bare(where, f"set -e\n{SETUP}")
        assert made.returncode == 0, made.stderr.decode()
    return where


def make(made_by: pytest.TempPathFactory, where: Path, before: str) -> Path:
    shutil.copytree(template(made_by), where, symlinks=True)
    if before:
        made = bare(where / "repo", f"set -e\n{before}", 1)
        assert made.returncode == 0, made.stderr.decode()
    return where / "repo"


def state(repository: Path) -> State:
    files: dict[str, tuple[str, bytes]] = {}
    git: dict[str, tuple[str, bytes]] = {}
    for above, directories, names in os.walk(repository):
        here = Path(above).relative_to(repository)
        in_git = ".git" in here.parts
        if not in_git:
            directories[:] = [name for name in directories if name not in _OWN]
        links = [name for name in directories if (Path(above) / name).is_symlink()]
        if in_git:
            directories[:] = [name for name in directories if name != "objects"]
        for name in [*names, *links]:
            path = Path(above) / name
            if name not in _BY_MEANING or not in_git:
                (git if in_git else files)[str(here / name)] = content(path, repository)
        if in_git and "HEAD" in names and here.name != "logs":
            git[str(here / "(meaning)")] = meaning(Path(above))
    return State(files, git)


def content(path: Path, repository: Path) -> tuple[str, bytes]:
    at = path.lstat()
    data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
    if path.match(".git/info/exclude"):
        lines = data.splitlines(keepends=True)
        data = b"".join(line for line in lines if line.strip().decode() not in _HIDDEN)
    return oct(stat.S_IMODE(at.st_mode)), data.replace(os.fsencode(repository.parent), b"/twin")


def meaning(git_dir: Path) -> tuple[str, bytes]:
    """What a git directory holds: its objects, and the entries of its index."""
    env = {**os.environ, "GIT_DIR": str(git_dir)}
    said = [
        subprocess.run(["git", *words], env=env, cwd=git_dir, capture_output=True).stdout
        for words in (
            ("cat-file", "--batch-all-objects", "--batch-check"),
            ("ls-files", "--stage", "-v"),
            ("ls-files", "--unmerged"),
            ("ls-files", "--resolve-undo"),
        )
    ]
    return "", b"\n".join(said)


def differences(ours: dict[str, tuple[str, bytes]], theirs: dict[str, tuple[str, bytes]]) -> str:
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return "\n".join(f"{name}:\n  {ours.get(name)}\n  {theirs.get(name)}" for name in names)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_ends_as_without_substrate(
    daemon: Daemon, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    before, steps = WORKFLOWS[name]
    twin = make(tmp_path_factory, tmp_path / "bare", before)
    daemon.workspace = make(tmp_path_factory, tmp_path / "ours", before)
    now = before_last = state(daemon.workspace)
    assert now == state(twin)
    for number, line in enumerate(steps, start=2):
        expected = bare(twin, line, number)
        done = daemon.run("-c", line, env={**daemon.env, **dated(number)})
        shown = f"{line}\n--- ours\n{done.stderr.decode()}--- bare\n{expected.stderr.decode()}"
        assert done.returncode == expected.returncode, shown
        assert done.stdout.replace(b"/ours", b"/bare") == expected.stdout, shown
        stood, now, theirs = now, state(daemon.workspace), state(twin)
        assert not differences(now.files, theirs.files), shown
        assert not differences(now.git, theirs.git), shown
        before_last = stood if now != stood else before_last
    takes_back_or_changes_nothing(daemon, before_last, now)


def takes_back_or_changes_nothing(daemon: Daemon, before: State, after: State) -> None:
    """Plain `undo`: the tree of before the newest command that changed anything, or no change."""
    undone = daemon.run("undo")
    now = state(daemon.workspace)
    if undone.returncode == 0 and now.files != after.files:
        assert not differences(now.files, before.files), undone.stderr.decode()
    else:
        assert now == after, undone.stderr.decode()
