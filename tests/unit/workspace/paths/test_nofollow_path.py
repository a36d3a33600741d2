from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from substrate.model.paths import ROOT, RelPath, rel_path
from substrate.workspace import dirwalk
from substrate.workspace.dirwalk import CHANGE, SEARCH, Directory, Walker

pytestmark = pytest.mark.needs("posix", "symlinks")


@pytest.fixture(params=["descriptors", "paths"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "paths":
        monkeypatch.setattr(dirwalk, "_BY_DESCRIPTOR", False)
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
