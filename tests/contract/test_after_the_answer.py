"""Once a command is answered nothing comes up in the project any more, and nothing goes: its caller
may be removing it, or moving it away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.recorder import place as places
from substrate.recorder.place import Place
from substrate.recorder.record_command import CommandRequest, record_command
from substrate.recorder.world_choice import Asked, world_for
from substrate.system import afterwards, environment
from substrate.world import ahead, probe
from substrate.world.network.choose import network_for
from tests.contract.as_user import as_user

pytestmark = pytest.mark.needs("linux", "world-overlay")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "d").mkdir(parents=True)
    (made / "d" / "file").write_text("0\n")
    probe.probe()  # or each child would
    return made


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def _do(root: Path, line: str) -> None:
    place = Place.at(root, environment.current(), None, "ada")
    request = CommandRequest(root, shell=line, network=network_for("open"))
    record_command(place, world_for(place, Asked()), request)


def _after_the_answer() -> None:
    """As the agent's process does, and then the one that waits for the next call."""
    recipe = ahead.news.recipe
    ahead.settle()
    afterwards.run()
    assert recipe is not None
    ahead.prepare(recipe)
    places.open_ahead(Path(os.fsdecode(recipe.root)))
    ahead.see_off()
    afterwards.run_clearing()


def _names_after(
    root: Path, lines: tuple[str, ...], between: Callable[[], object]
) -> tuple[list[str], list[str]]:
    """What there was after `between`, right after the answer, and what there is in the end."""
    afterwards.postpone()
    for line in lines[:-1]:
        _do(root, line)
        _after_the_answer()
    _do(root, lines[-1])
    between()
    before = _names(root)
    _after_the_answer()
    after = _names(root)
    ahead.drop()
    afterwards.run()
    afterwards.run_clearing()
    places.drop_ahead()
    return before, after


_LINES = {
    "the first": ("echo 1 > d/file",),
    "one in a world made ahead": ("true", "echo 1 > d/file; echo 2 > new"),
    "one that changes nothing": ("echo 1 > d/file", "true"),
    "many": ("mkdir e; echo 1 > e/new", "rm -r e", "cat d/file", "echo 2 >> d/file"),
}


@pytest.mark.parametrize("lines", _LINES.values(), ids=_LINES)
def test_no_name_comes_or_goes(root: Path, lines: tuple[str, ...]) -> None:
    before, after = as_user(os.geteuid(), lambda: _names_after(root, lines, lambda: None))
    assert after == before


_PARTS = (".substrate-git", ".substrate-git/lock", ".substrate-git/index", ".substrate-git/worlds",
          ".substrate-git/index/history.db", ".substrate-git/.git", ".substrate-git/.git/HEAD",
          ".substrate-git/.git/refs")  # fmt: skip


@pytest.mark.parametrize("part", _PARTS)
def test_what_somebody_has_removed_so_far_is_not_made_again(root: Path, part: str) -> None:
    def remove() -> None:
        (root / "d" / "file").unlink()
        if (root / part).is_dir():
            shutil.rmtree(root / part)
        else:
            (root / part).unlink()

    lines = _LINES["one in a world made ahead"]
    before, after = as_user(os.geteuid(), lambda: _names_after(root, lines, remove))
    assert set(after) <= set(before)


def test_a_project_that_was_moved_is_left_alone(root: Path) -> None:
    lines = _LINES["one in a world made ahead"]
    moved = root.with_name("moved")

    def move() -> list[str]:
        _names_after(root, lines, lambda: root.rename(moved))
        return _names(root.parent)

    assert not [name for name in as_user(os.geteuid(), move) if name.startswith("project")]
    assert (moved / ".substrate-git" / "lock").exists()
