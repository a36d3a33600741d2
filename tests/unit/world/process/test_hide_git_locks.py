"""A view that does not see what others make under some names, whatever the command did there."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.world.process.hide_git_locks import Absent
from tests.mounts import mounted, tmpfs_words

_PATIENCE_S = 60

pytestmark = pytest.mark.needs("overlay", "root", "mounts")


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory of the tree below, and the same in the view."""
    for name in ("lower/d", "upper", "work", "view"):
        (tmp_path / name).mkdir(parents=True)
    options = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    with mounted(tmp_path / "view", "-t", "overlay", "overlay", "-o", options):
        yield tmp_path / "lower" / "d", tmp_path / "view" / "d"


@contextmanager
def hidden(view: Path) -> Iterator[Absent]:
    absent = Absent(os.fsencode(view.parent), (b"d/lock", b"gone/lock"))
    try:
        yield absent
    finally:
        absent.close()


def look(absent: Absent) -> None:
    assert select.select([absent.fd], [], [], _PATIENCE_S)[0]
    absent.look_again()


def test_a_name_that_was_used_and_given_up_is_looked_for_again(layers: tuple[Path, Path]) -> None:
    lower, view = layers
    with hidden(view) as absent:
        for _ in range(3):
            (lower / "lock").touch()
            assert not (view / "lock").exists(), "nobody had it when it was looked for"
            (lower / "lock").unlink()
            (view / "lock").write_text("mine")
            (view / "lock").rename(view / "index")
            look(absent)
    (view / "lock").touch()
    (view / "lock").unlink()
    (lower / "lock").touch()
    assert (view / "lock").exists(), "and so it would be without"


def test_one_that_was_made_below_before_we_looked_is_taken_out(layers: tuple[Path, Path]) -> None:
    lower, view = layers
    with hidden(view) as absent:
        (view / "lock").touch()
        (view / "lock").unlink()
        (lower / "lock").write_text("his")
        assert (view / "lock").exists(), "he was quicker"
        look(absent)
        assert not (view / "lock").exists()
        assert (lower / "lock").read_text() == "his"
        with (view / "lock").open("x") as file:
            file.write("mine")


@pytest.mark.parametrize("how", ["touch", "link", "rename"])
def test_the_commands_own_is_left_alone(layers: tuple[Path, Path], how: str) -> None:
    _, view = layers
    with hidden(view) as absent:
        (view / "other").write_text("mine")
        (view / "away").touch()
        (view / "away").unlink()
        if how == "touch":
            (view / "lock").write_text("mine")
        elif how == "link":
            os.link(view / "other", view / "lock")
        else:
            (view / "other").rename(view / "lock")
        look(absent)
        assert (view / "lock").read_text() == "mine"


def test_one_that_takes_the_place_of_another_while_we_look_is_left_alone(
    layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two gits of the command: one has done, and the next begins before we have decided."""
    _, view = layers
    with hidden(view) as absent:
        (view / "lock").write_text("the first one's")
        absent.look_again()
        listen, steps = absent._listen, iter(("before", "between"))

        def listening() -> object:
            step = next(steps, "")
            if step == "between":  # it was seen a moment ago
                (view / "lock").rename(view / "index")
            heard = listen()
            if step == "between":
                (view / "lock").write_text("the next one's")
            return heard

        monkeypatch.setattr(absent, "_listen", listening)
        absent.look_again()
        assert (view / "lock").read_text() == "the next one's"


def test_one_already_there_at_the_start_may_be_the_commands(layers: tuple[Path, Path]) -> None:
    lower, view = layers
    (view / "lock").write_text("mine")
    with hidden(view) as absent:
        (view / "other").touch()
        look(absent)
        assert (view / "lock").read_text() == "mine"
        (view / "lock").rename(view / "index")
        (lower / "lock").touch()
        assert (view / "lock").exists(), "he was quicker"
        look(absent)
        assert not (view / "lock").exists()


def test_nothing_is_taken_out_of_the_view_of_a_shells_next_line(
    layers: tuple[Path, Path], tmp_path: Path
) -> None:
    """Something that the line before left running goes on in the view that was its own."""
    lower, view = layers
    for name in ("upper2", "work2"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={lower.parent},upperdir={tmp_path}/upper2,workdir={tmp_path}/work2"
    with hidden(view) as absent:
        before = os.open(view, os.O_PATH)
        try:
            with mounted(view.parent, "-t", "overlay", "overlay", "-o", options):
                (lower / "lock").write_text("his")
                os.mkdir("something", dir_fd=before)
                look(absent)
                assert (view / "lock").read_text() == "his"
                assert not (tmp_path / "upper2" / "d").exists(), "nothing was changed in it"
        finally:
            os.close(before)


def test_nothing_is_taken_out_of_what_is_mounted_there(layers: tuple[Path, Path]) -> None:
    _, view = layers
    with mounted(view, *tmpfs_words()):
        (view / "lock").touch()
        with hidden(view):
            assert (view / "lock").exists()


@pytest.mark.parametrize("how", ["link", "directory"])
def test_nothing_is_taken_out_of_what_was_put_in_its_place(
    layers: tuple[Path, Path], tmp_path: Path, how: str
) -> None:
    _, view = layers
    view.rmdir()
    view.mkdir()  # one of the command's own can be moved
    with hidden(view) as absent:
        moved, other = view.parent / "moved", view.parent / "other"
        if how == "link":
            other = tmp_path / "other"
        other.mkdir()
        (other / "lock").write_text("somebody's")
        view.rename(moved)
        if how == "link":
            view.symlink_to(other)
        else:
            other.rename(view)
        (moved / "name").touch()
        look(absent)
        assert (view / "lock").read_text() == "somebody's"


@pytest.mark.long
def test_no_lock_of_the_commands_is_ever_taken_out(layers: tuple[Path, Path]) -> None:
    """Two independent processes: the one in the view never loses its own lock."""
    lower, view = layers
    take = "n=0; while [ $n -lt {} ]; do if (set -C; : > lock) 2>&-; then {}; fi; n=$((n+1)); done"
    mine = take.format(3000, "mv lock index || exit 9")
    his = take.format(3000, "rm -f lock")
    with (
        hidden(view) as absent,
        subprocess.Popen(["bash", "-c", mine], cwd=view) as inside,
        subprocess.Popen(["bash", "-c", his], cwd=lower) as outside,
    ):
        while inside.poll() is None:
            if select.select([absent.fd], [], [], 0.1)[0]:
                absent.look_again()
        assert inside.returncode == 0
        assert outside.wait() == 0
