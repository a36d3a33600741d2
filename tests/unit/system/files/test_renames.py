from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.system.files import renames
from substrate.system.files.renames import exchange, rename_new

pytestmark = pytest.mark.needs("posix")


@pytest.fixture(params=["system call", "by hand"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "by hand":
        monkeypatch.setattr(renames, "_system_call", lambda: None)
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "in").write_bytes(b"in")
    return tmp_path


def _at(place: Path, name: str) -> bytes:
    return os.fsencode(place / name)


@pytest.mark.parametrize("name", ["one", "link", "dir"])
def test_onto_a_free_name(place: Path, name: str) -> None:
    inode = (place / name).lstat().st_ino
    rename_new(_at(place, name), _at(place, "new"))
    assert (place / "new").lstat().st_ino == inode
    assert not os.path.lexists(place / name)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        (name, taken)
        for name in ("one", "link", "dir")
        for taken in ("two", "link", "dir", "dangling")
        if name != taken
    ],
)
def test_never_onto_a_taken_name(place: Path, name: str, taken: str) -> None:
    (place / "dangling").symlink_to("nowhere")
    before = sorted(p.name for p in place.iterdir())
    with pytest.raises(FileExistsError):
        rename_new(_at(place, name), _at(place, taken))
    assert sorted(p.name for p in place.iterdir()) == before
    assert (place / "two").read_bytes() == b"2" and (place / "dir" / "in").exists()


def test_relative_to_descriptors(place: Path) -> None:
    here, there = os.open(place, os.O_RDONLY), os.open(place / "dir", os.O_RDONLY)
    try:
        rename_new(b"one", b"moved", src_dir_fd=here, dst_dir_fd=there)
        assert (place / "dir" / "moved").read_bytes() == b"1"
        with pytest.raises(FileNotFoundError):
            rename_new(b"one", b"again", src_dir_fd=here, dst_dir_fd=there)
    finally:
        os.close(here)
        os.close(there)


@pytest.mark.needs("linux")
@pytest.mark.parametrize(("one", "two"), [("one", "two"), ("one", "dir"), ("link", "dir")])
def test_exchange_of_any_two_kinds(tmp_path: Path, one: str, two: str) -> None:
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "dir").mkdir()
    inodes = (tmp_path / one).lstat().st_ino, (tmp_path / two).lstat().st_ino
    assert exchange(_at(tmp_path, one), _at(tmp_path, two))
    assert ((tmp_path / two).lstat().st_ino, (tmp_path / one).lstat().st_ino) == inodes


@pytest.mark.needs("linux")
def test_exchange_with_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    with pytest.raises(FileNotFoundError):
        exchange(_at(tmp_path, "one"), _at(tmp_path, "none"))
    assert (tmp_path / "one").read_bytes() == b"1"


def test_where_there_is_no_such_call_exchange_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renames, "_system_call", lambda: None)
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    assert not exchange(_at(tmp_path, "one"), _at(tmp_path, "two"))
    assert (tmp_path / "one").read_bytes() == b"1"
