"""New worlds keep away from where ext4 would make their files slowly."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.system import clock
from substrate.system.files import files
from substrate.system.linux import ext4_placement
from substrate.system.sync import liveness_locks
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from tests.mounts import mounted

pytestmark = pytest.mark.needs("linux", "loop-devices")
_NOTES = "user.substrate.removed"


def disk_in(base: Path, journal: str) -> Iterator[Path]:
    image, top = base / "image", base / "disk"
    top.mkdir()
    with image.open("wb") as file:
        file.truncate(96 << 20)
    # Groups of 8 MiB and 8192 inodes: a dozen of them.
    options = ["-b", "1024", "-i", "1024", "-O", f"{journal},^flex_bg"]
    subprocess.run(["mkfs.ext4", "-q", "-F", *options, str(image)], check=True)
    with mounted(top, "-o", "loop", str(image)):
        yield top
        liveness_locks.let_go()  # an open file would keep the disk busy


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from disk_in(tmp_path, "^has_journal")


@pytest.fixture
def journalled(tmp_path: Path) -> Iterator[Path]:
    yield from disk_in(tmp_path, "has_journal")


def group_of(path: Path) -> int:
    return (path.stat().st_ino - 1) // 8192


def new_world(top: Path, number: int, count: int = 0) -> Layer:
    root = top / "root"
    root.mkdir(exist_ok=True)
    made = layer_dirs.create(top / "worlds", f"wld_{number}", root, "copy", b"user.overlay.")
    (made.upper / "below").mkdir()
    for each in range(count):
        (made.upper / "below" / str(each)).touch()
    return made


def test_the_next_world_is_elsewhere(disk: Path) -> None:
    places = []
    for number in range(5):
        layer = new_world(disk, number, count=200)
        places.append(group_of(layer.directory))
        layer_dirs.remove(layer)
    assert len(set(places)) == 5
    assert os.listdir(disk / "worlds") == []


def test_it_is_noted_wherever_the_next_one_may_be_made(disk: Path) -> None:
    (disk / "elsewhere").mkdir()
    layer_dirs.remove(new_world(disk, 1, count=200), disk / "elsewhere", disk / "worlds")
    notes = os.getxattr(disk / "worlds", _NOTES)
    assert len(notes.split()) == 1
    assert os.getxattr(disk / "elsewhere", _NOTES) == notes


def test_a_few_files_are_no_reason(disk: Path) -> None:
    for number in range(3):
        layer_dirs.remove(new_world(disk, number, count=3))
    assert _NOTES not in os.listxattr(disk / "worlds")


def test_a_journal_needs_no_notes(journalled: Path) -> None:
    layer_dirs.remove(new_world(journalled, 1, count=200))
    assert _NOTES not in os.listxattr(journalled / "worlds")


def test_the_notes_grow_old(disk: Path) -> None:
    layer = new_world(disk, 1, count=200)
    layer_dirs.remove(layer)
    new_world(disk, 2)
    later = clock.now_ns() + 400 * 1_000_000_000
    clock.set_clock(lambda: later)
    try:
        layer_dirs.remove(new_world(disk, 3, count=200))
    finally:
        clock.set_clock(None)
    assert len(os.getxattr(disk / "worlds", _NOTES).split()) == 1


def test_where_nothing_better_is_found_it_stays(disk: Path) -> None:
    """And what was made on the way is gone; a note that makes no sense is none."""
    worlds = disk / "worlds"
    worlds.mkdir()
    files.spread_subdirectories(worlds)
    os.setxattr(worlds, _NOTES, b"nonsense:5 6")
    (worlds / "one").mkdir()
    ext4_placement.make_elsewhere(bytes(worlds / "one"), [])
    everywhere = b" ".join(b"%d:%d" % (n, clock.now_ns() // 10**9) for n in range(20))
    os.setxattr(worlds, _NOTES, everywhere)
    before = (worlds / "one").stat().st_ino
    names = [bytes(worlds / f"ahead-{n}") for n in range(4)]
    ext4_placement.make_elsewhere(bytes(worlds / "one"), names)
    assert os.listdir(worlds) == ["one"]
    assert (worlds / "one").stat().st_ino == before


def test_of_slow_places_the_best_is_taken(disk: Path) -> None:
    """Removals by other processes are not noted: the time to create a file shows them."""
    worlds = disk / "worlds"
    worlds.mkdir()
    os.setxattr(worlds, _NOTES, b"999:%d" % (clock.now_ns() // 10**9))
    (worlds / "one").mkdir()
    assert ext4_placement.cost_ns(bytes(worlds / "one"), set()) is not None
    inodes: dict[bytes, int] = {}

    def cost_ns(directory: bytes, _: set[int]) -> int | None:
        name = os.path.basename(directory)
        inodes[name] = os.stat(directory).st_ino
        return {b"one": 60_000, b"a1": None, b"a3": 20_000}.get(name, 30_000)

    names = [bytes(worlds / f"a{n}") for n in range(20)]
    ext4_placement.make_elsewhere(bytes(worlds / "one"), names, cost_ns)
    assert os.listdir(worlds) == ["one"]
    assert (worlds / "one").stat().st_ino == inodes[b"a3"]
    assert len(inodes) < 10


def test_the_first_quick_place_will_do(disk: Path) -> None:
    worlds = disk / "worlds"
    worlds.mkdir()
    os.setxattr(worlds, _NOTES, b"999:%d" % (clock.now_ns() // 10**9))
    (worlds / "one").mkdir()
    asked: list[bytes] = []

    def cost_ns(directory: bytes, _: set[int]) -> int | None:
        asked.append(os.path.basename(directory))
        return 5_000 if len(asked) == 2 else 50_000

    names = [bytes(worlds / f"a{n}") for n in range(20)]
    ext4_placement.make_elsewhere(bytes(worlds / "one"), names, cost_ns)
    assert asked == [b"one", b"a0"]
    assert os.listdir(worlds) == ["one"]
