"""What two git index files differ in: what they say, or only what files looked like."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.objects.index.index_equal import fresh_stat

#: Younger than every file here.
LATER = 0xFFFFFFFF


@pytest.fixture(params=[2, 3, 4])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    for name in ("a", "dir/b", "dir/bb", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    if request.param == 3:
        git(tmp_path, "rm", "-q", "--cached", "c")
        git(tmp_path, "add", "--intent-to-add", "c")
    elif request.param == 4:
        git(tmp_path, "update-index", "--index-version", "4")
    assert index(tmp_path)[7] == request.param
    return tmp_path


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)


def index(root: Path) -> bytes:
    return (root / ".git" / "index").read_bytes()


def test_a_refresh_says_how_files_look_now(repository: Path) -> None:
    before = index(repository)
    os.utime(repository / "dir" / "bb", ns=(5, 3 * 10**9 + 7))
    git(repository, "update-index", "-q", "--refresh")
    fresh = fresh_stat(before, index(repository), LATER)
    assert fresh is not None
    assert fresh.is_all
    assert list(fresh.stats) == [b"dir/bb"]
    noted, at = fresh.stats[b"dir/bb"], (repository / "dir" / "bb").stat()
    assert (noted.mtime_s, noted.mtime_ns) == (3, 7)
    assert noted.ctime_s * 10**9 + noted.ctime_ns == at.st_ctime_ns
    assert (noted.ino, noted.uid, noted.gid, noted.size) == (
        at.st_ino & 0xFFFFFFFF,
        at.st_uid,
        at.st_gid,
        6,
    )


@pytest.mark.parametrize("work", ["content", "mode", "removed", "new", "flag"])
def test_what_says_something_else_is_more_than_a_refresh(repository: Path, work: str) -> None:
    before = index(repository)
    words = {
        "content": ("add", "a"), "mode": ("add", "a"), "removed": ("rm", "-q", "--cached", "a"),
        "new": ("add", "n"), "flag": ("update-index", "--assume-unchanged", "a"),
    }[work]  # fmt: skip
    if work == "content":
        (repository / "a").write_text("b")
    elif work == "mode":
        (repository / "a").chmod(0o755)
    elif work == "new":
        (repository / "n").touch()
    git(repository, *words)
    assert fresh_stat(before, index(repository), LATER) is None


def test_one_that_notes_directories_too_says_so(repository: Path) -> None:
    before = index(repository)
    os.utime(repository / "a", (1, 1))
    git(repository, "update-index", "--force-untracked-cache")
    git(repository, "status", "--porcelain")
    fresh = fresh_stat(before, index(repository), LATER)
    assert fresh is not None
    assert not fresh.is_all


def test_what_cannot_be_read_differs(repository: Path) -> None:
    whole = index(repository)
    assert fresh_stat(whole, whole, LATER) is not None
    assert fresh_stat(whole, whole[:100], LATER) is None
    assert fresh_stat(whole, b"", LATER) is None
    assert fresh_stat(b"LINK" + whole[4:], whole, LATER) is None


def test_what_git_was_not_sure_of_is_reported(repository: Path) -> None:
    for name, mtime_s in (("dir/b", 99), ("dir/bb", 100), ("a", 101)):
        os.utime(repository / name, (mtime_s, mtime_s))
    git(repository, "add", ".")
    before = index(repository)
    os.utime(repository / "a", (5, 5))
    git(repository, "update-index", "-q", "--refresh")
    fresh = fresh_stat(before, index(repository), 100)
    assert fresh is not None
    assert list(fresh.stats) == [b"a"]
    unsure = dict(fresh.unsure)
    unsure.pop(b"c", None)  # where it was added just now
    assert list(unsure) == [b"dir/bb"]
    assert unsure[b"dir/bb"].ino == (repository / "dir/bb").stat().st_ino & 0xFFFFFFFF


def test_longer_ids_are_read_as_such(tmp_path: Path) -> None:
    names = ["eaebfbbfddbebfc", "afffcddbfbacdecedceaefce", "fcfdfbdfdaecaccaeacfefbbcfab"]
    git(tmp_path, "init", "-q", "--object-format=sha256")
    for name in names:
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", ".")
    for number in range(30):
        before = index(tmp_path)
        (tmp_path / names[number % 3]).write_text(str(number))
        git(tmp_path, "add", ".")
        assert fresh_stat(before, index(tmp_path), LATER) is None
    before = index(tmp_path)
    os.utime(tmp_path / names[0], (7, 7))
    git(tmp_path, "update-index", "-q", "--refresh")
    fresh = fresh_stat(before, index(tmp_path), LATER)
    assert fresh is not None
    assert fresh.stats[names[0].encode()].mtime_s == 7


def test_an_index_without_a_checksum_is_read_too(repository: Path) -> None:
    before = index(repository)
    os.utime(repository / "a", (7, 7))
    git(repository, "update-index", "-q", "--refresh")
    zeros = bytes(20)
    fresh = fresh_stat(before[:-20] + zeros, index(repository)[:-20] + zeros, LATER)
    assert fresh is not None
    assert list(fresh.stats) == [b"a"]
    assert fresh_stat(before[:-20] + zeros[:-1] + b"x", index(repository), LATER) is None
