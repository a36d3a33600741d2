from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from substrate.system.files.files import (
    fsync_dir,
    read_bytes_or_none,
    real_path,
    remove_tree,
    spread_subdirectories,
    write_atomic,
)


def test_write_atomic_makes_the_file_with_the_exact_mode(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        write_atomic(tmp_path / "a", b"one", mode=0o664)
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o664


def test_write_atomic_replaces_and_leaves_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    write_atomic(tmp_path / "a", b"new", durable=False)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_write_atomic_with_a_255_byte_name(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("x" * 255), b"long")
    assert (tmp_path / ("x" * 255)).read_bytes() == b"long"


def test_write_atomic_that_fails_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "d" / "inner").mkdir(parents=True)
    with pytest.raises(OSError):
        write_atomic(tmp_path / "d", b"a directory cannot be replaced by a file")
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_read_bytes_or_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert read_bytes_or_none(tmp_path / "a") == b"x"
    assert read_bytes_or_none(tmp_path / "b") is None
    assert read_bytes_or_none(tmp_path / "a" / "below-a-file") is None


def test_fsync_dir_of_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    fsync_dir(tmp_path)
    with pytest.raises(FileNotFoundError):
        fsync_dir(tmp_path / "none")


def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").write_text("keep")
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "link").symlink_to(tmp_path / "victim")
    (tree / "dangling").symlink_to("nowhere")
    remove_tree(tree)
    assert not tree.exists()
    assert (tmp_path / "victim" / "precious").read_text() == "keep"


def test_remove_tree_of_a_link_removes_the_link_only(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("keep")
    (tmp_path / "link").symlink_to("real")
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").exists()


def test_remove_tree_of_nothing_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")


def test_remove_tree_gets_through_depth_and_width(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for number in range(700):
        os.mkdir("d", dir_fd=fd)
        if number % 50 == 0:
            os.close(os.open(f"file{number}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    remove_tree(top)
    assert not top.exists()


def _remove_read_only_tree_as_nobody(base: Path) -> int:
    """In a child that has given up root: 0555 and 0000 directories must not be in the way."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            tree = base / "tree"
            (tree / "a" / "b").mkdir(parents=True)
            (tree / "a" / "file").write_text("x")
            (tree / "a" / "file").chmod(0o444)
            (tree / "a" / "b").chmod(0)
            (tree / "a").chmod(0o555)
            remove_tree(tree)
            status = 0 if not tree.exists() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.needs("fork")
def test_remove_tree_of_read_only_directories(tmp_path: Path) -> None:
    for above in [tmp_path, *tmp_path.parents]:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    base = tmp_path / "open"
    base.mkdir()
    base.chmod(0o777)
    assert _remove_read_only_tree_as_nobody(base) == 0


@pytest.mark.needs("linux")
def test_subdirectories_are_spread_where_the_file_system_can(tmp_path: Path) -> None:
    def flags() -> str:
        if shutil.which("lsattr") is None:
            return ""
        said = subprocess.run(["lsattr", "-d", str(tmp_path)], capture_output=True, check=False)
        return said.stdout.decode().split(" ")[0]

    before = flags()
    spread_subdirectories(tmp_path)
    spread_subdirectories(tmp_path)
    if "e" in before:  # extents: this is ext4
        assert flags().replace("T", "-") == before and "T" in flags()
    spread_subdirectories(tmp_path / "missing")
    (tmp_path / "below").mkdir()


@pytest.mark.parametrize(
    "path",
    [
        *("dir", "dir/", "link", "link/file", "link/../dir", "file", "loop", "gone", "link/gone"),
        *("file/below", "dangling", "a (deleted)", ".", "..", "", "fifo", "x\udcff", "dir//./file"),
    ],
)
def test_a_real_path_is_what_python_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("dir")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    (tmp_path / "a (deleted)").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / os.fsdecode(b"x\xff")).symlink_to("file")
    assert real_path(path) == os.path.realpath(path)
    assert real_path(tmp_path / path) == os.path.realpath(tmp_path / path)


def test_the_real_path_of_a_directory_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with monkeypatch.context() as moved:
        moved.chdir(here)
        here.rmdir()
        with pytest.raises(FileNotFoundError):  # as os.path.realpath: it has no path
            real_path(".")
