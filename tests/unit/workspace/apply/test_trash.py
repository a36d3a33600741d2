from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.errors import NotFoundError, RefusedError
from substrate.model.nodes import Kind
from substrate.model.paths import rel_path
from substrate.system.clock import set_clock
from substrate.workspace.apply.trash import Trash, TrashEntry
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from tests.mounts import mounted, tmpfs_words

SECOND = 1_000_000_000
REASON = Kept(TrashReason.EXCLUDED, "built-in: node_modules/")


@pytest.fixture
def now() -> Iterator[list[int]]:
    """A clock that the test moves."""
    at = [1000 * SECOND]
    set_clock(lambda: at[0])
    yield at
    set_clock(None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def trash(root: Path) -> Trash:
    (root / ".substrate-git").mkdir()
    return Trash(root / ".substrate-git" / "trash")


def test_no_store_is_made_where_the_project_was(root: Path) -> None:
    (root / "a").write_bytes(b"1")
    with pytest.raises(FileNotFoundError):
        Trash(root / ".substrate-git" / "trash").keep(root, rel_path(b"a"), "c-1", REASON)
    assert os.listdir(root) == ["a"]


def _keep(trash: Trash, root: Path, name: str, data: bytes, under: str = "c-1") -> TrashEntry:
    (root / name).write_bytes(data)
    return trash.keep(root, rel_path(os.fsencode(name)), under, REASON)


def test_keep_moves_and_says_what_it_was(trash: Trash, root: Path, now: list[int]) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"12345")
    inode = (root / "d" / "f").stat().st_ino
    entry = trash.keep(root, rel_path(b"d/f"), "c-42", REASON)
    assert not (root / "d" / "f").exists()
    assert entry.location.read_bytes() == b"12345" and entry.location.stat().st_ino == inode
    assert entry == TrashEntry(
        "c-42/1", rel_path(b"d/f"), Kind.FILE, 5, now[0], REASON, entry.location
    )
    assert trash.list() == (entry,) and trash.find("c-42/1") == entry
    record = json.loads((entry.location.parent / "entry.json").read_text())
    assert record["path"] == "d/f" and record["reason"] == "excluded"
    assert record["detail"] == "built-in: node_modules/"


@pytest.mark.needs("byte-names")
def test_names_that_are_not_text(trash: Trash, root: Path) -> None:
    name = os.fsdecode(b"-\xff\n" + b"x" * 250)
    _keep(trash, root, name, b"1")
    (entry,) = trash.list()
    assert entry.path == os.fsencode(name)
    trash.restore(entry, root)
    assert (root / name).read_bytes() == b"1"


def test_links_and_directories(trash: Trash, root: Path) -> None:
    (root / "victim").write_bytes(b"stays")
    (root / "link").symlink_to("victim")
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"123")
    link = trash.keep(root, rel_path(b"link"), "c-1", REASON)
    directory = trash.keep(root, rel_path(b"d"), "c-1", REASON)
    assert (root / "victim").read_bytes() == b"stays"
    assert (link.kind, directory.kind) == (Kind.SYMLINK, Kind.DIRECTORY)
    assert directory.size_bytes is None and trash.measure(directory) == 3
    for entry in trash.list():
        trash.restore(entry, root)
    assert (root / "d" / "e" / "f").exists() and (root / "link").is_symlink()
    assert list(trash.directory.iterdir()) == []


def test_nothing_there(trash: Trash, root: Path) -> None:
    with pytest.raises(NotFoundError):
        trash.keep(root, rel_path(b"none"), "c-1", REASON)
    with pytest.raises(NotFoundError):
        trash.find("c-1/1")
    assert trash.list() == ()


def test_restore_is_never_over_something(trash: Trash, root: Path) -> None:
    entry = _keep(trash, root, "x", b"old")
    (root / "x").write_bytes(b"new")
    with pytest.raises(RefusedError) as caught:
        trash.restore(entry, root)
    assert caught.value.hint and (root / "x").read_bytes() == b"new"
    (root / "x").unlink()
    trash.restore(entry, root)
    assert (root / "x").read_bytes() == b"old" and trash.list() == ()


def test_restore_needs_the_directory_and_follows_no_link(trash: Trash, root: Path) -> None:
    (root / "d").mkdir()
    entry = _keep(trash, root, "d/x", b"old")
    (root / "d").rmdir()
    with pytest.raises(RefusedError):
        trash.restore(entry, root)
    (root.parent / "outside").mkdir()
    (root / "d").symlink_to("../outside")
    with pytest.raises(RefusedError):
        trash.restore(entry, root)
    assert list((root.parent / "outside").iterdir()) == [] and trash.list() == (entry,)


@pytest.mark.parametrize("under", ["", ".", "..", "a/b", "a\\b"])
def test_the_group_is_one_plain_name(trash: Trash, root: Path, under: str) -> None:
    (root / "x").write_bytes(b"1")
    with pytest.raises(ValueError):
        trash.keep(root, rel_path(b"x"), under, REASON)
    assert (root / "x").exists()


def test_expire_by_age(trash: Trash, root: Path, now: list[int]) -> None:
    old = _keep(trash, root, "old", b"1")
    now[0] += 100 * SECOND
    young = _keep(trash, root, "young", b"2", under="c-2")
    assert trash.expire(100, 1 << 30, lambda when: now[0] - when) == ()
    now[0] += SECOND
    assert trash.expire(100, 1 << 30, lambda when: now[0] - when) == (old,)
    assert trash.list() == (young,)
    assert not (trash.directory / "c-1").exists()


def test_expire_by_size_takes_the_oldest(trash: Trash, root: Path, now: list[int]) -> None:
    entries = []
    for number in range(4):
        entries.append(_keep(trash, root, f"f{number}", b"x" * 10))
        now[0] += SECOND
    assert trash.expire(1e9, 25, lambda when: now[0] - when) == tuple(entries[:2])
    assert trash.list() == tuple(entries[2:])
    assert trash.expire(1e9, 0, lambda when: now[0] - when) == tuple(entries[2:])


def test_a_clock_that_went_backwards_expires_nothing(
    trash: Trash, root: Path, now: list[int]
) -> None:
    _keep(trash, root, "x", b"1")
    now[0] = 0
    assert trash.expire(0, 1 << 30, lambda when: now[0] - when) == ()


def test_a_record_without_an_item_is_nothing(trash: Trash, root: Path) -> None:
    """A crash between the record and the move."""
    entry = _keep(trash, root, "x", b"1")
    entry.location.unlink()
    assert trash.list() == ()
    _keep(trash, root, "y", b"2")
    assert [e.path for e in trash.list()] == [b"y"]


def test_no_other_user_can_read_it(trash: Trash, root: Path) -> None:
    before = os.umask(0)
    try:
        entry = _keep(trash, root, "x", b"1")
    finally:
        os.umask(before)
    assert entry.location.parent.stat().st_mode & 0o077 == 0
    assert entry.location.parent.parent.stat().st_mode & 0o077 == 0


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    with mounted(place, *tmpfs_words()):
        yield place


@pytest.mark.needs("root", "linux")
def test_to_another_file_system_and_back_it_is_copied(root: Path, elsewhere: Path) -> None:
    (root / "d" / "sub").mkdir(parents=True)
    (root / "d" / "f").write_bytes(b"bytes")
    (root / "d" / "f").chmod(0o4711)
    os.utime(root / "d" / "f", ns=(1, 2))
    os.chown(root / "d" / "f", 12, 34)
    (root / "d" / "f").chmod(0o4711)
    (root / "d" / "link").symlink_to("f")
    os.mkfifo(root / "d" / "sub" / "fifo")
    (root / "d" / "sub").chmod(0o555)
    trash = Trash(elsewhere / "trash")
    entry = trash.keep(root, rel_path(b"d"), "c-1", REASON)
    assert not (root / "d").exists()
    trash.restore(entry, root)
    at = (root / "d" / "f").stat()
    assert (at.st_mode & 0o7777, at.st_mtime_ns, at.st_uid, at.st_gid) == (0o4711, 2, 12, 34)
    assert (root / "d" / "f").read_bytes() == b"bytes"
    assert os.readlink(root / "d" / "link") == "f"
    assert (root / "d" / "sub" / "fifo").is_fifo()
    assert (root / "d" / "sub").stat().st_mode & 0o777 == 0o555
    assert trash.list() == ()


@pytest.mark.parametrize(
    "line", [b"\x00", b"[]", b"[1, 2, 3]", b'["!", 1, 2]', b'["aXRlbQ==", "x"]']
)
def test_a_damaged_note_of_modes_costs_no_more_than_a_mode(
    trash: Trash, root: Path, line: bytes
) -> None:
    """Notes are lines: the next one counts."""
    (root / "d").mkdir(mode=0o755)
    (root / "d" / "f").write_bytes(b"1")
    entry = trash.keep(root, rel_path(b"d"), "c-1", REASON)
    notes = entry.location.parent / "openings"
    notes.write_bytes(line + b'\n["aXRlbQ==", %d, %d]\n' % (0o755, 0o500))
    trash.restore(entry, root)
    assert (root / "d" / "f").read_bytes() == b"1"
    assert (root / "d").stat().st_mode & 0o777 == 0o500
