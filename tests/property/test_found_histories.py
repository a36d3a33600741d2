"""Histories that the machine found to go wrong, kept as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.oracle import leftovers
from tests.property.driver import Driver, killed_at


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    (tmp_path / "project").mkdir()
    return Driver(tmp_path / "project", tmp_path)


def test_a_restored_directory_does_not_take_later_work_with_it(driver: Driver) -> None:
    """The redo put `d` back; restoring the state before it means `d`, not what came into it."""
    root = driver.root
    driver.begin()
    assert driver.run("s", lambda: (root / "d").mkdir()).how == "done"
    assert driver.undo(None, "s", ()).how == "done"
    redone = driver.redo("s")
    (root / "d" / "mine").write_text("typed since\n")
    assert driver.restore(str(redone.recovery)).how == "done"
    assert (root / "d" / "mine").read_text() == "typed since\n"


@pytest.mark.needs("fork")
def test_a_killed_writer_leaves_nothing_behind(driver: Driver) -> None:
    driver.begin()
    kills = 0
    for at in range(1, 40):
        work = (driver.root / "a").write_text
        killed = killed_at(at, lambda: driver.run("s", lambda: work(f"{at}\n") and None))
        driver.begin()
        assert leftovers(driver.root) == [], f"killed before change {at}"
        kills += killed
        if not killed:
            break
    assert kills > 10
