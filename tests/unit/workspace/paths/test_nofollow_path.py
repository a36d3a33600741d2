from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from substrate.model.paths import ROOT, RelPath, rel_path
from substrate.workspace.paths import nofollow_path
from substrate.workspace.paths.nofollow_path import CHANGE, SEARCH, Directory, Walker

pytestmark = pytest.mark.needs("posix", "symlinks")


@pytest.fixture(params=["descriptors", "paths"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "paths":
        monkeypatch.setattr(nofollow_path, "BY_DESCRIPTOR", False)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"1")
    (tmp_path / "a" / "link").symlink_to("b")
    (tmp_path / "out").symlink_to("/")
    return tmp_path


def test_the_parent_of_a_path(root: Path) -> None:
    directory, name = Walker(root).parent_of(rel_path(b"a/b/file"))
    with directory:
        assert name == b"file" and directory.names() == [b"file"]
        assert stat.S_ISREG(directory.lstat(name).st_mode)
    directory, name = Walker(root).parent_of(rel_path(b"top"))
    with directory:
        assert name == b"top" and directory.names() == [b"a", b"out"]
        assert not directory.exists(name)


@pytest.mark.parametrize("path", [b"a/link/file", b"out/etc/passwd", b"a/b/file/below"])
def test_links_and_files_on_the_way_are_refused(root: Path, path: bytes) -> None:
    with pytest.raises(NotADirectoryError):
        Walker(root).parent_of(rel_path(path))


def test_a_missing_directory_on_the_way(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Walker(root).parent_of(rel_path(b"a/none/file"))


DEEP = [b"d"] * 200


def dig(root: Path) -> None:
    below = root / "/".join(["d"] * len(DEEP))
    below.mkdir(parents=True)
    (below / "file").write_bytes(b"1")


@pytest.mark.needs("linux")
def test_each_directory_of_a_deep_tree_is_reached_by_a_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dig(tmp_path)
    opened, real = [], os.open

    def counting(path: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(path)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", counting)
    walker = Walker(tmp_path)
    for depth in range(1, len(DEEP) + 1):
        with walker.directory(RelPath(b"/".join(DEEP[:depth]))) as directory:
            assert directory.names() == [b"file" if depth == len(DEEP) else b"d"]
    assert len(opened) < 3 * len(DEEP)  # step by step it is half the square: 20,000


def test_far_down_links_are_refused_as_well(root: Path) -> None:
    dig(root)
    half = b"/".join(DEEP[:100])
    os.symlink(root / os.fsdecode(half), root / os.fsdecode(half) / "link")
    for path in (b"/link/" + half + b"/file", b"/link/file", b"/link"):
        with pytest.raises(NotADirectoryError):
            Walker(root).directory(RelPath(half + path))
    with pytest.raises(FileNotFoundError):
        Walker(root).directory(RelPath(half + b"/none/" + half))
    with pytest.raises(NotADirectoryError):
        Walker(root).directory(RelPath(b"/".join([*DEEP, b"file", b"below"])))


def test_far_down_the_opener_is_asked_for_the_directory_itself(root: Path) -> None:
    dig(root)
    asked = []
    walker = Walker(root, lambda _, name, path, bits: asked.append((name, path, bits)))
    walker.directory(RelPath(b"/".join(DEEP)), CHANGE).close()
    assert asked[-1] == (b"d", RelPath(b"/".join(DEEP)), CHANGE)


def test_a_directory_itself(root: Path) -> None:
    with Walker(root).directory(ROOT) as directory:
        assert directory.exists(b"a")
    with Walker(root).directory(rel_path(b"a/b")) as directory:
        assert directory.names() == [b"file"]
    for path in (b"out", b"a/link", b"a/b/file"):
        with pytest.raises(NotADirectoryError):
            Walker(root).directory(rel_path(path))


def test_the_root_must_be_a_directory(root: Path) -> None:
    with pytest.raises(NotADirectoryError):
        Directory.open_root(root / "a" / "b" / "file")


def test_the_opener_is_asked_from_the_top_down_with_what_is_needed(root: Path) -> None:
    asked: list[tuple[bytes, int]] = []

    def opener(here: Directory, name: bytes, path: RelPath, bits: int) -> None:
        assert here.exists(name)
        asked.append((path, bits))

    Walker(root, opener).parent_of(rel_path(b"a/b/file"))[0].close()
    assert asked == [(b"a", SEARCH), (b"a/b", CHANGE)]


def test_chmod_does_not_follow(root: Path) -> None:
    target = root / "a" / "b" / "file"
    (root / "a" / "b" / "way").symlink_to("file")
    target.chmod(0o640)
    with Walker(root).directory(rel_path(b"a/b")) as directory:
        directory.chmod(b"file", 0o4600)
        assert stat.S_IMODE(target.stat().st_mode) == 0o4600
        with pytest.raises(OSError):
            directory.chmod(b"way", 0o777)
    assert stat.S_IMODE(target.stat().st_mode) == 0o4600


def test_open_does_not_follow(root: Path) -> None:
    (root / "a" / "b" / "way").symlink_to("file")
    with Walker(root).directory(rel_path(b"a/b")) as directory, pytest.raises(OSError):
        directory.open(b"way", os.O_RDONLY)


def test_no_descriptor_is_left_open(root: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs linux")
    before = os.listdir("/proc/self/fd")
    for path in (b"a/b/file", b"a/link/file", b"a/none/x", b"a/b/file/below"):
        try:
            Walker(root).parent_of(rel_path(path))[0].close()
        except OSError:
            pass
    assert len(os.listdir("/proc/self/fd")) == len(before)
