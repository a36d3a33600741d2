"""An index gets the change times of files that are otherwise as it notes them, and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from substrate.objects.index.index_splice import with_change_times


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("a", "b", "long" * 40, "dir/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    git(tmp_path, "add", ".")
    return tmp_path


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout


def index(repo: Path) -> bytes:
    return (repo / ".git" / "index").read_bytes()


def stats(repo: Path, *names: str, later_s: int = 5) -> dict[bytes, os.stat_result]:
    """What `lstat` says, with a change time so much later."""
    out = {}
    for name in names:
        at = os.lstat(repo / name)
        exact = {"st_mtime_ns": at.st_mtime_ns, "st_ctime_ns": at.st_ctime_ns + later_s * 10**9}
        out[name.encode()] = os.stat_result(tuple(at)[:10], exact)
    return out


@pytest.mark.parametrize("version", ["2", "3"])
def test_only_change_times_differ(repo: Path, version: str) -> None:
    if version == "3":
        git(repo, "update-index", "--skip-worktree", "b")  # an extended flag
    before = index(repo)
    assert before[4:8] == int(version).to_bytes(4, "big")
    after = with_change_times(before, stats(repo, "a", "dir/c", "long" * 40))
    assert after is not None and len(after) == len(before)
    assert hashlib.sha1(after[:-20]).digest() == after[-20:]
    (repo / ".git" / "index").write_bytes(before)
    shown = git(repo, "ls-files", "--debug").splitlines()
    (repo / ".git" / "index").write_bytes(after)
    now = git(repo, "ls-files", "--debug").splitlines()
    changed = [line for line, old in zip(now, shown, strict=True) if line != old]
    assert len(changed) == 3 and all("ctime" in line for line in changed)
    assert git(repo, "ls-files", "--stage", "-v").count("\n") == 4


def test_a_file_that_is_another_by_now_keeps_what_was_noted(repo: Path) -> None:
    (repo / "a").write_text("edited, of another size\n")
    assert with_change_times(index(repo), stats(repo, "a")) is None
    assert with_change_times(index(repo), stats(repo, "b", later_s=0)) is None
    assert with_change_times(index(repo), {}) is None


@pytest.mark.parametrize("data", [b"", b"DIRC", bytes(100)])
def test_what_is_no_index_is_left_alone(data: bytes) -> None:
    assert with_change_times(data, {}) is None


def test_an_index_of_another_version_or_a_damaged_one_is_left_alone(repo: Path) -> None:
    before, found = index(repo), stats(repo, "a")
    assert with_change_times(before[:-1] + b"\0", found) is None
    git(repo, "update-index", "--index-version", "4")
    assert with_change_times(index(repo), found) is None
