"""Where worlds wait that are no command's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.system import ids
from substrate.system.linux.rename_equivalence import is_same_ground
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from substrate.world.prewarm import parked_layers
from substrate.world.prewarm.prewarmed_world import WorldsAhead

pytestmark = pytest.mark.needs("linux")

_PREFIX = b"trusted.overlay."


class Home:
    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.worlds = self.root / ".substrate-git" / "worlds"
        self.elsewhere = base / "home" / "worlds"
        for directory in (self.worlds, self.elsewhere):
            directory.mkdir(parents=True, mode=0o700)

    def place(self) -> Path:
        parked_layers.place.cache_clear()
        return parked_layers.place(self.worlds, self.root, self.elsewhere)

    def layer(self, name: str) -> Layer:
        return layer_dirs.create(self.elsewhere, name, self.root, "overlay", _PREFIX, ahead=True)


def _nobody() -> int:
    """The number of a process that is no more."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return gone.pid


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_elsewhere_if_that_makes_no_difference(home: Home) -> None:
    assert home.place() == home.elsewhere


def test_in_the_project_where_there_is_no_such_place(home: Home) -> None:
    home.elsewhere.rmdir()
    assert home.place() == home.worlds
    assert not home.elsewhere.exists()


def test_in_the_project_if_others_could_write_there(home: Home) -> None:
    home.elsewhere.parent.chmod(0o777)
    assert home.place() == home.worlds


def test_in_the_project_if_elsewhere_is_in_it(home: Home) -> None:
    home.elsewhere = home.root / "home" / "worlds"
    home.elsewhere.mkdir(parents=True, mode=0o700)
    assert home.place() == home.worlds


def test_in_the_project_if_elsewhere_is_the_project_itself(home: Home) -> None:
    home.root = home.elsewhere
    home.worlds = home.root / ".substrate-git" / "worlds"
    home.worlds.mkdir(parents=True, mode=0o700)
    assert home.place() == home.worlds


def test_what_only_looks_like_a_name_of_ours_stays(home: Home) -> None:
    notes = home.elsewhere / f"ahead-{_nobody()}-plan" / "notes"
    notes.parent.mkdir()
    notes.write_text("mine")
    parked_layers.sweep(home.elsewhere)
    assert notes.read_text() == "mine"


def test_a_command_that_leaves_a_world_there_clears_away_what_others_left(home: Home) -> None:
    parked_layers.place.cache_clear()
    (home.elsewhere / f"ahead-{_nobody()}-{ids.new_id('wld')}" / "upper").mkdir(parents=True)
    layer = layer_dirs.create(home.worlds, "wld_a", home.root, "overlay", _PREFIX, ahead=True)
    WorldsAhead().leave(layer, home.elsewhere)
    assert os.listdir(home.elsewhere) == os.listdir(home.worlds) == []


def test_another_file_system_is_other_ground(tmp_path: Path) -> None:
    assert is_same_ground(bytes(tmp_path), bytes(tmp_path))
    assert not is_same_ground(bytes(tmp_path), b"/proc")
    assert not is_same_ground(bytes(tmp_path), bytes(tmp_path / "none"))


def test_a_list_that_new_files_would_get_is_other_ground(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    # Version 2; owner, group and others: all, read, nothing.
    entries = ((0x01, 7), (0x04, 4), (0x20, 0))
    value = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + right.to_bytes(2, "little") + b"\xff" * 4
        for tag, right in entries
    )
    try:
        os.setxattr(one, "system.posix_acl_default", value)
    except OSError:
        pytest.skip("no access lists here")
    assert not is_same_ground(bytes(one), bytes(other))
    os.setxattr(other, "system.posix_acl_default", value)
    assert is_same_ground(bytes(one), bytes(other))


def test_what_was_killed_is_swept_and_nothing_else(home: Home) -> None:
    mine, held = home.layer(layer_dirs.nobodys_name(home.elsewhere)), home.layer("wld_held")
    being_made = home.elsewhere / f"ahead-{os.getpid()}-x"
    left = home.elsewhere / f"ahead-{_nobody()}-wld_x"
    for directory in (being_made, left):
        (directory / "upper").mkdir(parents=True)
    parked_layers.sweep(home.elsewhere)
    found = {mine.directory.name, held.directory.name, being_made.name}
    assert set(os.listdir(home.elsewhere)) == found


def test_a_parked_layer_has_no_owner_and_keeps_its_content(home: Home) -> None:
    layer = layer_dirs.create(home.worlds, "wld_a", home.root, "overlay", _PREFIX, ahead=True)
    (layer.upper / "file").write_text("x")
    moved = parked_layers.put(layer, home.elsewhere)
    assert os.listdir(home.worlds) == []
    assert (moved.upper / "file").read_text() == "x"
    assert moved.directory.name.startswith(f"ahead-{os.getpid()}-")
