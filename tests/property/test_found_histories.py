"""Histories that the machine found to go wrong, kept as they are."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.crash.oracle import leftovers, tree
from tests.property.driver import Driver, killed_at


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    (tmp_path / "project").mkdir()
    return Driver(tmp_path / "project", tmp_path)


def test_a_restored_directory_does_not_take_later_work_with_it(driver: Driver) -> None:
    """The redo put `d` back; restoring the state before it means `d`, not what came into it."""
    root = driver.root
    driver.begin()
    assert driver.run("s", (root / "d").mkdir).how == "done"
    assert driver.undo(None, "s", ()).how == "done"
    redone = driver.redo("s")
    (root / "d" / "mine").write_text("typed since\n")
    assert driver.restore(str(redone.recovery)).how == "done"
    assert (root / "d" / "mine").read_text() == "typed since\n"


@pytest.mark.needs("fork")
def test_a_killed_writer_leaves_nothing_behind(driver: Driver) -> None:
    driver.begin()
    kills = 0
    while True:
        text = f"{kills}\n"
        killed = killed_at(kills + 1, partial(record, driver, text))
        driver.begin()
        assert leftovers(driver.root) == [], f"killed before change {kills + 1}"
        if not killed:
            break
        kills += 1
    assert kills > 10
    assert (driver.root / "a").read_text() == text


def record(driver: Driver, text: str) -> None:
    assert driver.run("s", partial((driver.root / "a").write_text, text)).how == "done"


def test_an_empty_directory_of_the_users_is_not_taken_for_the_commands_file(
    driver: Driver,
) -> None:
    """The command made a file; the user put a directory in its place: that is a conflict."""
    place = driver.root / "a"
    driver.begin()
    record(driver, "x")
    place.unlink()
    place.mkdir()
    assert driver.undo(None, "s", ()).how == "conflict"
    assert place.is_dir()


def test_what_comes_back_and_goes_again_leaves_no_directory(driver: Driver) -> None:
    """One step of the rollback brings `d/f` back, the next one takes it away: `d` goes too."""
    root = driver.root
    driver.begin()
    start = driver.log()[0].id

    def make() -> None:
        (root / "d").mkdir()
        (root / "d" / "f").write_text("x")

    assert driver.run("s", make).how == "done"
    assert driver.run("other", (root / "o").touch).how == "done"
    assert driver.run("s", partial(shutil.rmtree, root / "d")).how == "done"
    assert driver.roll_back_to(start, exact=False).how == "done"
    assert sorted(tree(root)) == [b"o"]
